"""`cairn verify`: every fault by file, tensor and block, alone and on ranks."""

import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

from program import CairnTest, Paused, cairn, exit_codes, main
from small_files import FIRST, counting, read_safetensors, two_shards, write_safetensors

BLOCK = 4096


class SoundCheckpoint(CairnTest):
    """A checkpoint of one file with two tensors of ten blocks each."""

    def setUp(self):
        super().setUp()
        write_safetensors(self.folder / "source" / "model.safetensors",
                          {"first.weight": counting("F32", [10, 1024]), "second.weight": counting("F32", [10, 1024])})
        self.sound = self.folder / "sound"
        self.good("convert", self.folder / "source", self.sound, "--block-size", BLOCK)
        (length,) = struct.unpack("<Q", (self.sound / "model.safetensors").read_bytes()[:8])
        self.data_start = 8 + length
        self.assertEqual(self.data_start % BLOCK, 0)

    def flip(self, path, offset):
        content = bytearray(path.read_bytes())
        content[offset] ^= 0x10
        path.write_bytes(content)


class Verify(SoundCheckpoint):
    """One checkpoint."""

    def copy(self):
        target = self.folder / "damaged"
        shutil.rmtree(target, ignore_errors=True)
        return shutil.copytree(self.sound, target)

    def faults(self, folder, **options):
        result = cairn("verify", folder, "--json", **options)
        self.assertEqual(result.code, 1, result.err)
        document = result.json()
        self.assertFalse(document["good"])
        return document["faults"]

    def test_one_file_of_a_checkpoint_is_not_read_unchecked(self):
        damaged = self.copy()
        file = damaged / "model.safetensors"
        self.flip(file, self.data_start)
        says = [file, f"one file of the checkpoint '{damaged}'", "give the directory"]
        for ranks in None, 2:
            self.bad(2, "verify", file, ranks=ranks, says=says)
            self.bad(2, "convert", file, self.folder / "out", ranks=ranks, says=says)
            self.bad(2, "diff", file, self.sound, ranks=ranks, says=says)
        self.bad(2, "inspect", file, says=says)
        (damaged / "cairn.json").unlink()  # the block table remains
        self.bad(2, "verify", file, says=says)
        self.assertFalse((self.folder / "out").exists())

    def test_a_sound_checkpoint(self):
        document = self.good("verify", self.sound, "--json", ranks=3).json()
        self.assertTrue(document["good"])
        self.assertTrue(document["has_checksums"])
        size = (self.sound / "model.safetensors").stat().st_size
        self.assertEqual((document["files"], document["tensors"], document["size_bytes"]), (1, 2, size))
        self.assertEqual(document["blocks"], size // BLOCK)
        self.assertRegex(self.good("verify", self.sound).out, r"(^|\n)good: 2 tensors in 1 file of ")

    def test_it_says_whether_it_read_past_the_page_cache(self):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            folder = shutil.copytree(self.sound, pathlib.Path(memory) / "sound")
            document = self.good("verify", folder, "--json", ranks=2).json()
            self.assertFalse(document["past_page_cache"])
            self.assertRegex(" ".join(document["notes"]), "may have come from the page cache .* lives in memory")
            out = self.good("verify", folder).out
            self.assertIn("note: ", out)
            self.assertNotIn("read past the page cache", out)
        if subprocess.run(["stat", "-fc", "%T", self.sound], capture_output=True, text=True).stdout.strip() == "tmpfs":
            self.skipTest("the test folder is in memory")
        self.assertTrue(self.good("verify", self.sound, "--json").json()["past_page_cache"])
        self.assertIn(" blocks read past the page cache and checked in ", self.good("verify", self.sound, ranks=2).out)

    def test_a_flipped_bit_is_named_by_file_tensor_and_block(self):
        folder = self.copy()
        offset = self.data_start + 12 * BLOCK + 17
        self.flip(folder / "model.safetensors", offset)
        for ranks in (None, 3):
            (fault,) = self.faults(folder, ranks=ranks)
            self.assertEqual(fault["file"], "model.safetensors")
            self.assertEqual(fault["tensors"], ["second.weight"])
            self.assertEqual(fault["block"], offset // BLOCK)
        lines = cairn("verify", folder).out.splitlines()
        self.assertEqual(len(lines), 2, lines)
        for word in ("fault: ", "model.safetensors", "second.weight", f"block {offset // BLOCK}"):
            self.assertIn(word, lines[0])
        self.assertRegex(lines[1], "^bad: 1 fault in ")
        self.assertEqual(exit_codes("verify", folder, ranks=3), [1, 1, 1])

    def test_every_fault_is_named(self):
        folder = self.copy()
        for block in (0, 5, 12, 19):
            self.flip(folder / "model.safetensors", self.data_start + block * BLOCK)
        for ranks in (None, 3):
            faults = self.faults(folder, ranks=ranks)
            self.assertEqual([fault["block"] - self.data_start // BLOCK for fault in faults], [0, 5, 12, 19])
            self.assertEqual([fault["tensors"] for fault in faults], [["first.weight"]] * 2 + [["second.weight"]] * 2)

    def test_other_damage(self):
        cases = {
            "config of the checksums": ("cairn.blocks", lambda path: self.flip(path, path.stat().st_size // 2)),
            "missing file": ("model.safetensors", lambda path: path.unlink()),
            "cut file": ("model.safetensors", lambda path: path.write_bytes(path.read_bytes()[:-1])),
            "missing checksums": ("cairn.blocks", lambda path: path.unlink()),
        }
        for what, (name, damage) in cases.items():
            with self.subTest(what=what):
                folder = self.copy()
                damage(folder / name)
                faults = self.faults(folder)
                self.assertTrue(any(name in fault["message"] for fault in faults), faults)

    def test_nothing_to_verify_against(self):
        two_shards(self.folder / "plain")
        result = self.good("verify", self.folder / "plain")
        self.assertIn("nothing to verify", result.out)
        self.assertIn("structure good: 3 tensors in 2 files", result.out)
        document = self.good("verify", self.folder / "plain", "--json", ranks=2).json()
        self.assertEqual((document["good"], document["has_checksums"]), (True, False))


class VerifyAll(SoundCheckpoint):
    """A root with checkpoints 10, 20 and 30, and one that was never committed."""

    def setUp(self):
        super().setUp()
        self.root = self.folder / "root"
        for step in (10, 20, 30):
            shutil.copytree(self.sound, self.checkpoint(step))
        (self.root / "checkpoint-40.0123456789abcdef.partial").mkdir()

    def checkpoint(self, step):
        return self.root / f"checkpoint-{step}"

    def rows(self, code, **options):
        result = cairn("verify", self.root, "--all", "--json", **options)
        self.assertEqual(result.code, code, result.err)
        document = result.json()
        self.assertEqual(document["good"], code == 0)
        return document, {row["step"]: row for row in document["checkpoints"]}

    def test_every_checkpoint_is_a_line(self):
        size = (self.sound / "model.safetensors").stat().st_size
        for ranks in (None, 3):
            lines = self.good("verify", self.root, "--all", ranks=ranks).out.splitlines()
            self.assertEqual(len(lines), 5, lines)
            for line, step in zip(lines, (10, 20, 30)):
                self.assertRegex(line, rf"^step +{step}  complete +good: .* in {size // BLOCK} blocks of 1 file, ")
            self.assertRegex(lines[3], "^step +40  partial +not checked: not committed$")
            self.assertRegex(lines[4], f"^good: 3 checkpoints under .*, .* in {3 * size // BLOCK} blocks checked in .*; "
                                       "the newest good one is step 30$")
        document, rows = self.rows(0, ranks=2)
        self.assertEqual((document["newest_good_step"], document["size_bytes"]), (30, 3 * size))
        self.assertEqual({step: row["state"] for step, row in rows.items()},
                         {10: "complete", 20: "complete", 30: "complete", 40: "partial"})
        self.assertEqual((rows[10]["size_bytes"], rows[10]["faults"], rows[10]["tensors"]), (size, [], 2))
        self.assertIsNone(rows[40]["good"])

    def test_what_is_wrong_with_each(self):
        for block in (2, 12):
            self.flip(self.checkpoint(30) / "model.safetensors", self.data_start + block * BLOCK)
        (self.checkpoint(20) / "cairn.json").unlink()
        for ranks in (None, 3):
            document, rows = self.rows(1, ranks=ranks)
            self.assertEqual(document["newest_good_step"], 10)
            self.assertEqual([fault["tensors"] for fault in rows[30]["faults"]], [["first.weight"], ["second.weight"]])
            self.assertEqual((rows[20]["state"], rows[20]["good"]), ("incomplete", False))
            self.assertIn("cairn.json is missing, and cairn.blocks is there", rows[20]["faults"][0]["message"])
            self.assertTrue(rows[10]["good"])
        result = cairn("verify", self.root, "--all")
        lines = result.out.splitlines()
        self.assertEqual((result.code, len(lines)), (1, 5), lines)
        self.assertRegex(lines[1], "^step +20  incomplete  bad: .*cairn.json is missing")
        self.assertRegex(lines[2], "^step +30  complete +bad: 2 faults, the first: .*model.safetensors.*first.weight")
        self.assertRegex(lines[4], "^bad: 2 of 3 checkpoints under .*; the newest good one is step 10$")
        self.assertEqual(exit_codes("verify", self.root, "--all", ranks=3), [1, 1, 1])
        (self.checkpoint(10) / "model.safetensors").unlink()
        (self.checkpoint(30) / "model.safetensors").unlink()
        (self.checkpoint(30) / "model.safetensors").symlink_to(self.sound / "model.safetensors")
        document, rows = self.rows(1)
        self.assertIsNone(document["newest_good_step"])
        self.assertIn("is missing", rows[10]["faults"][0]["message"])
        self.assertIn("--follow-links", rows[30]["faults"][0]["message"])
        self.assertIn("there is no good one to resume from", cairn("verify", self.root, "--all").out)

    def test_one_that_cannot_be_read_keeps_no_other_from_being_checked(self):
        for ranks, fault in ((None, "stat:path=checkpoint-20/:errno=EACCES"),
                             (3, "open:path=checkpoint-20/model:errno=ESTALE")):
            result = cairn("verify", self.root, "--all", ranks=ranks, CAIRN_FAULT=fault)
            lines = result.out.splitlines()
            self.assertEqual((result.code, result.errors, len(lines)), (1, [], 5), result.err + result.out)
            self.assertRegex(lines[0], "^step +10  complete +good: ")
            self.assertRegex(lines[1], "^step +20 .* bad: .*checkpoint-20/.* failed: (Permission denied|Stale file handle)")
            self.assertRegex(lines[2], "^step +30  complete +good: ")
            self.assertRegex(lines[4], "^bad: 1 of 3 checkpoints under .*; the newest good one is step 30$")
        # A resource that the process lacks is not a fault of one checkpoint.
        result = cairn("verify", self.root, "--all", CAIRN_FAULT="open:path=checkpoint-20/model:errno=EMFILE")
        self.assertEqual((result.code, len(result.errors)), (1, 1), result.err + result.out)

    def test_one_without_rights(self):
        if os.geteuid() != 0:
            self.skipTest("not root, who alone can start processes of two users")
        self.checkpoint(20).chmod(0)
        self.folder.chmod(0o755)
        result = cairn("verify", self.root, "--all", who={"user": 65534, "group": 65534, "extra_groups": []}, HOME="/tmp")
        if "Permission denied: '" in result.err:
            self.skipTest("other users cannot reach the build or the folder of temporary files")
        self.assertEqual((result.code, result.errors), (1, []), result.err + result.out)
        self.assertRegex(result.out, "(?m)^step +20 .* bad: .*Permission denied")
        self.assertRegex(result.out, "(?m)^step +30  complete +good: ")

    def test_what_is_no_root(self):
        for path in (self.sound, self.sound / "model.safetensors", self.folder / "missing"):
            self.bad(1, "verify", path, "--all", ranks=2, says=["--all takes the root", path.name])

    def test_steps_of_other_systems_are_what_ls_calls_them(self):
        two_shards(self.checkpoint(35))
        states = {row["step"]: row["state"] for row in self.good("ls", self.root, "--json").json()["checkpoints"]}
        document, rows = self.rows(0, ranks=2)
        self.assertEqual({step: row["state"] for step, row in rows.items()}, states)
        self.assertEqual((rows[35]["state"], rows[35]["good"], document["newest_good_step"]), ("foreign", True, 30))
        out = self.good("verify", self.root, "--all").out
        self.assertRegex(out, r"(?m)^step +35  foreign +structure good: of Hugging Face, no checksums of Cairn's$")
        self.assertRegex(out, r"(?m)^good: 4 checkpoints under .*; of 1 foreign checkpoint only the structure was checked; "
                              r"the newest good one is step 30$")
        (self.checkpoint(35) / FIRST).unlink()
        document, rows = self.rows(1)
        self.assertEqual((rows[35]["state"], rows[35]["good"]), ("incomplete", False))
        for step in (10, 20, 30, 35):
            shutil.rmtree(self.checkpoint(step))
        two_shards(self.checkpoint(5))
        self.assertIn("structure good: 1 foreign checkpoint under ", self.good("verify", self.root, "--all").out)

    def test_a_checkpoint_that_is_removed_meanwhile_is_no_fault(self):
        paused = Paused(self, "read:path=checkpoint-10/model.safetensors", "verify", self.root, "--all")
        shutil.rmtree(self.checkpoint(20))
        paused.go()
        result = paused.result()
        self.assertEqual(result.code, 0, result.out + result.err)
        self.assertRegex(result.out, r"step +20  gone +not checked: removed meanwhile")
        self.assertRegex(result.out, "good: 2 checkpoints under")


class Foreign(CairnTest):
    """Checkpoints of other systems, which have no checksums of Cairn's."""

    def verified(self, code, *arguments, **options):
        result = cairn("verify", *arguments, "--json", **options)
        self.assertEqual(result.code, code, result.out + result.err)
        return result.json()

    def faults(self, *arguments, **options):
        return [fault["message"] for fault in self.verified(1, *arguments, **options)["faults"]]

    def add_blob(self, snapshot, name, content, digest):
        (snapshot.parents[1] / "blobs" / digest).write_bytes(content)
        (snapshot / name).symlink_to(f"../../blobs/{digest}")
        return snapshot.parents[1] / "blobs" / digest

    def test_files_of_a_cache_against_the_digests_in_their_names(self):
        repository = self.folder / "models--someone--tiny"
        snapshot = repository / "snapshots" / ("0123456789" * 4)
        snapshot.mkdir(parents=True)
        (repository / "blobs").mkdir()
        files = two_shards(self.folder / "plain")
        blobs = {}
        for name in files:
            content = (self.folder / "plain" / name).read_bytes()
            blobs[name] = self.add_blob(snapshot, name, content, hashlib.sha256(content).hexdigest())
        for name in ("model.safetensors.index.json", "config.json"):
            content = (self.folder / "plain" / name).read_bytes()
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            blobs[name] = self.add_blob(snapshot, name, content, git)
        size = sum(path.stat().st_size for path in blobs.values())
        for ranks in (None, 3):
            document = self.verified(0, snapshot, ranks=ranks)
            self.assertEqual((document["sha256_files"], document["git_files"], document["named_size_bytes"]), (2, 2, size))
        self.assertRegex(self.good("verify", snapshot).out, "2 files checked against the SHA-256 in their names, "
                                                            "2 files checked against git's SHA-1 in their names")
        self.assertNotIn("nothing to verify", self.good("verify", snapshot).out)
        document = self.verified(0, snapshot / FIRST)
        self.assertEqual((document["sha256_files"], document["git_files"]), (1, 0))
        for name in (FIRST, "config.json"):
            content = bytearray(blobs[name].read_bytes())
            content[-2] ^= 0x20 if name == FIRST else 0x0
            blobs[name].write_bytes(content if name == FIRST else content + b" ")
        for ranks in (None, 3):
            faults = self.verified(1, snapshot, ranks=ranks)["faults"]
            self.assertEqual([fault["file"] for fault in faults], ["config.json", FIRST])
            for fault in faults:
                blob = blobs[fault["file"]]
                now = blob.read_bytes()
                found = (hashlib.sha256(now) if fault["file"] == FIRST else
                         hashlib.sha1(b"blob %d\0" % len(now) + now)).hexdigest()
                for word in (str(snapshot / fault["file"]), found, blob.name, "download it again"):
                    self.assertIn(word, fault["message"])

    def test_weights_that_zero3_left_empty(self):
        empty = ("F32", [0], b"")
        layers = range(6)
        full = {f"model.layers.{i}.mlp.down_proj.weight": empty for i in layers}
        full |= {f"model.layers.{i}.input_layernorm.weight": counting("F32", [16]) for i in layers}
        write_safetensors(self.folder / "full" / "model.safetensors", full)
        some = {f"model.layers.{i}.down_proj.weight": counting("F32", [2, 2]) for i in layers}
        some |= {"model.layers.3.down_proj.weight": empty, "model.layers.3.experts.gate_up_proj": empty,
                 "model.layers.3.down_proj.bias": empty}
        write_safetensors(self.folder / "some" / "model.safetensors", some)
        adapter = {f"base_model.model.layers.0.q_proj.lora_{x}.weight": empty for x in "AB"}
        write_safetensors(self.folder / "adapter" / "adapter_model.safetensors", adapter)
        for name, count in (("full", 6), ("some", 3), ("adapter", 2)):
            (fault,) = self.verified(1, self.folder / name)["faults"]
            self.assertEqual(len(fault["tensors"]), count, fault)
            self.assertIn("stage3_gather_16bit_weights_on_model_save", fault["message"])
            self.bad(1, "convert", self.folder / name, self.folder / f"{name}-out", says=["as ZeRO-3 leaves weights"])
        result = cairn("convert", self.folder / "full", self.folder / "full-on-ranks", ranks=2)
        self.assertEqual(result.code, 1)
        self.assertIn("as ZeRO-3 leaves weights", result.out + result.err)
        result = self.good("convert", self.folder / "full", self.folder / "norms", "--name", "*layernorm*")
        self.assertIn("converted 6 tensors", result.out)
        self.assertIn("as ZeRO-3 leaves weights", result.out)

    def test_legal_tensors_without_elements(self):
        write_safetensors(self.folder / "legal" / "model.safetensors",
                          {"a.weight": ("F32", [0, 4], b""), "a.bias": ("F32", [0], b""), "b.weight": ("F32", [4, 0], b""),
                           "b.g_idx": ("I64", [0], b""), "c._extra_state": ("U8", [0], b""), "d.scale": ("F32", [0], b""),
                           "e.weight": counting("F32", [2, 2])})
        self.assertEqual(self.verified(0, self.folder / "legal")["notes"], [])

    def test_aliases_in_the_metadata(self):
        tied = self.folder / "tied"
        metadata = {"format": "pt", "shared.weight": "decoder.weight", "title": "an.example", "spec.version": "1.0.0"}
        write_safetensors(tied / "model.safetensors", {"decoder.weight": counting("F32", [2, 2])}, metadata)
        self.assertEqual(self.verified(0, tied)["faults"], [])
        self.assertEqual(self.good("inspect", tied, "--json").json()["aliases"], {"shared.weight": "decoder.weight"})
        self.assertIn("alias: shared.weight is the same tensor as decoder.weight", self.good("inspect", tied).out)
        self.good("convert", tied, self.folder / "out")
        self.assertEqual(read_safetensors(self.folder / "out" / "model.safetensors")[1]["shared.weight"], "decoder.weight")
        write_safetensors(self.folder / "lost" / "model.safetensors", {"other.weight": counting("F32", [2, 2])}, metadata)
        (fault,) = self.faults(self.folder / "lost")
        self.assertRegex(fault, "shared.weight.* is the same as .*decoder.weight.*, which is not stored either")

    def test_what_is_required(self):
        model = self.folder / "model"
        two_shards(model)
        self.good("verify", model, "--require", "model")
        faults = self.faults(model, "--require", "model,optimizer,step", ranks=2)
        self.assertEqual(len(faults), 2, faults)
        self.assertRegex(faults[0], "has no section optimizer, which --require asks for; it has model$")
        self.assertRegex(faults[1], "does not say its step, which --require asks for$")
        self.bad(2, "verify", model, "--require", "model,optimiser", says=["--require 'optimiser'", "master_weights"])
        shutil.copytree(model, self.folder / "root" / "checkpoint-7")
        result = cairn("verify", self.folder / "root", "--all", "--require", "optimizer")
        self.assertEqual(result.code, 1)
        self.assertRegex(result.out, "step +7  foreign +bad: .*has no section optimizer")

    def test_folders_that_hold_the_data(self):
        weights = {"w": counting("F32", [2, 2])}
        for folder in ("pipeline/unet", "pipeline/vae", "titan/step-100", "titan/step-200", "megatron/iter_0000100",
                       "deep/outputs/run"):
            write_safetensors(self.folder / folder / "model.safetensors", weights)
        (self.folder / "pipeline" / "model_index.json").write_text(json.dumps({"_class_name": "StableDiffusionPipeline"}))
        for name in ("accelerate/pytorch_model_fsdp_0/__0_0.distcp", "accelerate/scheduler.bin", "orbax/100/_CHECKPOINT_METADATA"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(b"x")
        for name, hint in (("pipeline", "its folders unet, vae hold data files: give one of them"),
                           ("titan", "its folders step-100, step-200 hold data files"),
                           ("megatron", "its folder iter_0000100 holds data files: give that folder"),
                           ("deep", "its folder outputs/run holds data files"),
                           ("accelerate", r"its folder pytorch_model_fsdp_0: \.distcp files of torch DCP are not read"),
                           ("orbax", "its folder 100: checkpoints of Orbax are not read")):
            with self.subTest(folder=name):
                path = self.folder / name
                self.assertRegex(self.good("ls", path).out, hint)
                for command in (["inspect"], ["verify"], ["verify", "--all"], ["convert", self.folder / "out"]):
                    result = cairn(command[0], path, *command[1:])
                    self.assertEqual((result.code, len(result.errors)), (1, 1), result.err)
                    self.assertRegex(result.err, hint)


if __name__ == "__main__":
    main()
