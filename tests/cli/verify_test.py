"""`cairn verify`: every fault by file, tensor and block, alone and on ranks."""

import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

from program import CairnTest, Paused, cairn, exit_codes, main
from small_files import counting, two_shards, write_safetensors

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

    def test_a_checkpoint_that_is_removed_meanwhile_is_no_fault(self):
        paused = Paused(self, "read:path=checkpoint-10/model.safetensors", "verify", self.root, "--all")
        shutil.rmtree(self.checkpoint(20))
        paused.go()
        result = paused.result()
        self.assertEqual(result.code, 0, result.out + result.err)
        self.assertRegex(result.out, r"step +20  gone +not checked: removed meanwhile")
        self.assertRegex(result.out, "good: 2 checkpoints under")


if __name__ == "__main__":
    main()
