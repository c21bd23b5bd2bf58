"""`cairn demo`: a training state saved by four ranks, loaded by 4, 3, 8 and 1; every kind of difference is noticed."""

import json
import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess
import tempfile

from program import CAIRN, CairnTest, cairn, exit_codes, main, snapshot
from small_files import read_safetensors

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
LANES = {"BF16": (0x83FF83FF83FF83FF, 0x3B803B803B803B80), "F32": (0x83FFFFFF83FFFFFF, 0x3B8000003B800000)}
BLOBS = "rank_state"  # the section of the ranks' blobs
TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 7,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 500,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "max_position_embeddings": 128}


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def hash_text(value, text):
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def expected_bytes(section, name, dtype, first_word, words):
    """The 8-byte words of a tensor, as src/bench/demo_state.hpp defines them."""
    seed = mix(hash_text(hash_text(0xCBF29CE484222325, section) * GOLDEN & MASK, name))
    lane, base = LANES[dtype]
    if name.endswith("/moment2_0"):
        lane &= ~0x8000000080000000
    numbers = [(mix((seed + word * GOLDEN) & MASK) & lane) + base for word in range(first_word, first_word + words)]
    return struct.pack(f"<{words}Q", *numbers)


def place_of(path, offset):
    """Name of the BF16 tensor that contains a byte of the file, and the element's number."""
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    header = json.loads(path.read_bytes()[8 : 8 + length])
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        if begin <= offset - 8 - length < end:
            assert entry["dtype"] == "BF16", entry
            return name, (offset - 8 - length - begin) // 2
    raise AssertionError(f"{path} has no byte {offset} of a tensor")


def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


class Demo(CairnTest):
    """Tests of one checkpoint of a small model; a test that changes it takes a copy."""

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="cli-demo-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        (cls.shared / "tiny.json").write_text(json.dumps(TINY))
        cls.root = cls.shared / "root"
        cls.saved = cls.save_at(cls.root)

    @classmethod
    def save_at(cls, root, *arguments, ranks=4):
        return cairn("demo", "save", "--dir", root, "--model", f"@{cls.shared}/tiny.json", "--layers", "2",
                     "--max-file-size", "250KB", *arguments, ranks=ranks)

    def copy_of_root(self):
        return shutil.copytree(self.root, self.folder / "root")

    def test_the_environment_is_recorded_and_compared(self):
        root = self.folder / "with"
        saved = self.save_at(root, "--environment", ranks=1)
        self.assertEqual(saved.code, 0, saved.err)
        file = root / "checkpoint-100" / "cairn.environment.json"
        self.assertEqual(json.loads(file.read_text())["ranks"], 1)
        document = self.good("demo", "load", "--dir", root, "--json").json()
        self.assertEqual(document["environment_changes"], [])
        text = self.good("demo", "load", "--dir", root, ranks=2).out
        self.assertIn("differs: ranks: saved by 1 rank on 1 node, now 2 ranks on 1 node", text)
        self.assertIn("environment: ranks: 1 rank on 1 node", self.good("inspect", root).out)
        self.assertIn("ranks: 1 rank on 1 node", self.good("inspect", root, "--json").json()["environment"])

    def test_save_prints_phases_and_totals(self):
        self.assertEqual(self.saved.code, 0, self.saved.err)
        self.assertRegex(self.saved.out, r"(?m)^generate +\d")
        self.assertRegex(self.saved.out, r"(?m)^total +\d")
        self.assertRegex(self.saved.out, r"(?m)^saved [\d,]+ tensors, [\d,]+ bytes .* 4 ranks in layout tp=2,pp=2 ")

    def test_every_value_is_as_documented(self):
        checkpoint = self.root / "checkpoint-100"
        compared = set()
        for path in sorted(checkpoint.glob("*.safetensors")):
            section = path.name.split("-0")[0].removesuffix(".safetensors")
            for name, (dtype, _, data) in read_safetensors(path)[0].items():
                if section != BLOBS:
                    self.assertEqual(data, expected_bytes(section, name, dtype, 0, len(data) // 8), name)
                    compared.add((section, name))
        self.assertEqual(len(compared), 80)  # 20 parameters: weights, master weights, two moments

    def test_files_of_a_training_state(self):
        names = {path.name for path in (self.root / "checkpoint-100").iterdir()}
        for section in ("model", "optimizer", "master_weights"):
            self.assertTrue(any(name.startswith(section) for name in names), names)
        self.assertGreater(len([name for name in names if name.startswith("optimizer-")]), 1, names)
        self.assertLessEqual({"config.json", "trainer_state.json", "cairn.json", "cairn.blocks"}, names)
        config = json.loads((self.root / "checkpoint-100" / "config.json").read_text())
        self.assertEqual((config["num_hidden_layers"], config["hidden_size"]), (2, 64))
        self.assertIn("good:", self.good("verify", self.root, ranks=2).out)

    def test_load_in_other_layouts(self):
        sections = self.good("inspect", self.root, "--json").json()["sections"]
        saved = [row for row in sections if row["name"] != BLOBS]
        self.assertEqual([row["name"] for row in saved], ["model", "optimizer", "master_weights"])
        size = sum(row["size_bytes"] for row in saved)
        for ranks, layout in ((4, "tp=2,pp=2"), (3, "fsdp=3"), (8, "tp=2,pp=2,dp=2"), (1, "fsdp=1"), (2, "dp=2,zero=1")):
            with self.subTest(ranks=ranks, layout=layout):
                document = self.good("demo", "load", "--dir", self.root, "--layout", layout, "--json", ranks=ranks).json()
                self.assertTrue(document["equal"])
                self.assertEqual(document["tensors"], sum(row["tensors"] for row in saved))
                self.assertGreaterEqual(document["size_bytes_compared"], size)
                if "fsdp" in layout:
                    self.assertEqual(document["size_bytes_compared"], size)
        text = self.good("demo", "load", "--dir", self.root, ranks=2).out
        self.assertIn(f"80 tensors, {size:,} bytes equal bit for bit\n", text)

    def test_save_on_eight_ranks_and_load_on_three(self):
        root = self.folder / "root"
        saved = self.save_at(root, "--layout", "tp=2,pp=2,dp=2", "--json", ranks=8)
        self.assertEqual(saved.code, 0, saved.err)
        self.assertEqual(saved.json()["layout"], "tp=2,pp=2,dp=2")
        document = self.good("demo", "load", "--dir", root, "--layout", "fsdp=3", "--json", ranks=3).json()
        self.assertTrue(document["equal"])
        self.assertEqual(document["size_bytes_compared"], saved.json()["size_bytes"])
        four, eight = ({path.name: path.read_bytes() for path in (at / "checkpoint-100").glob("*.safetensors")
                        if not path.name.startswith(BLOBS)} for at in (self.root, root))
        self.assertGreater(len(four), 3)
        self.assertEqual(eight, four, "the data files depend on the state alone")

    def test_load_with_wrong_arguments(self):
        self.bad(2, "demo", "load", "--dir", self.root, "--layout", "tp=2,pp=2", ranks=3,
                 says=["4 ranks", "3 run", "mpirun -n 4"])
        self.bad(2, "demo", "load", "--dir", self.root, "--layout", "sideways=3", ranks=3, says=["sideways"])
        self.bad(1, "demo", "load", "--dir", self.root, "--layers", "3", ranks=2, says=["layers.2."])
        self.bad(1, "demo", "load", "--dir", self.root, "--model", "@/nowhere/config.json", ranks=2, says=["/nowhere"])

    def test_a_step_that_exists(self):
        root = self.copy_of_root()
        result = self.save_at(root, ranks=2)
        self.assertEqual((result.code, len(result.errors)), (2, 1), result.err)
        self.assertIn("checkpoint-100", result.errors[0])
        self.assertIn("allow it to be replaced (--overwrite)", result.errors[0])
        self.assertEqual(self.save_at(root, "--overwrite", ranks=2).code, 0)
        self.assertEqual(self.save_at(root, "--step", "200", ranks=3).code, 0)
        states = [(row["step"], row["state"]) for row in self.good("ls", root, "--json").json()["checkpoints"]]
        self.assertEqual(states, [(100, "complete"), (200, "complete")])
        self.assertTrue(self.good("demo", "load", "--dir", root, "--json").json()["directory"].endswith("checkpoint-200"))

    def test_a_bit_that_flips_on_disk_is_found_by_its_checksum(self):
        root = self.copy_of_root()
        path = next((root / "checkpoint-100").glob("model*.safetensors"))
        flip(path, path.stat().st_size - 8)
        self.bad(1, "demo", "load", "--dir", root, ranks=3, says=[path.name])

    def test_a_load_goes_back_to_the_step_before_a_damaged_one(self):
        root = self.copy_of_root()
        self.assertEqual(self.save_at(root, "--step", "200", ranks=2).code, 0)
        newest = root / "checkpoint-200"
        weights = next(newest.glob("model*.safetensors"))
        for path, offset in ((weights, weights.stat().st_size - 8), (newest / "cairn.json", 1)):
            with self.subTest(damaged=path.name):
                flip(path, offset)
                document = self.good("demo", "load", "--dir", root, "--json", ranks=2).json()
                self.assertTrue(document["equal"])
                self.assertEqual(pathlib.Path(document["directory"]).name, "checkpoint-100")
                (skipped,) = document["skipped"]
                self.assertEqual((skipped["step"], pathlib.Path(skipped["directory"])), (200, newest))
                told = self.good("demo", "load", "--dir", root, ranks=2)
                passed_over = [line for line in told.warnings if "checkpoint-200' is passed over for the checkpoint before it: " in line]
                self.assertEqual(len(passed_over), 1, told.err)
                self.assertIn("checkpoint-100 on 2 ranks", told.out)
                flip(path, offset)
        flip(newest / "config.json", 1)  # a load reads none of the small files
        told = self.good("demo", "load", "--dir", root, "--json", ranks=2)
        self.assertEqual((told.json()["skipped"], pathlib.Path(told.json()["directory"]).name), ([], "checkpoint-200"))
        self.assertIn("the model is taken from checkpoint-100: ", told.err)
        flip(newest / "config.json", 1)
        self.assertEqual(self.good("demo", "load", "--dir", root, "--json", ranks=2).warnings, [])

    def test_a_wrong_value_with_a_good_checksum_is_found_by_comparison(self):
        plain = shutil.copytree(self.root / "checkpoint-100", self.folder / "plain")
        for name in ("cairn.json", "cairn.blocks"):
            (plain / name).unlink()
        path = next(plain.glob("model*.safetensors"))
        name, element = place_of(path, path.stat().st_size - 8)
        flip(path, path.stat().st_size - 8)
        wrong = self.folder / "wrong"
        self.good("convert", plain, wrong / "checkpoint-7")
        for ranks, layout in ((1, "fsdp=1"), (4, "tp=2,pp=2"), (8, "tp=2,pp=2,dp=2")):
            with self.subTest(layout=layout):
                self.bad(1, "demo", "load", "--dir", wrong, "--layout", layout, ranks=ranks,
                         says=["section model", f"'{name}'", f"element {element}:"])
        document = cairn("demo", "load", "--dir", wrong, "--json", ranks=3).json()
        self.assertFalse(document["equal"])
        self.assertEqual(document["first_difference"], {"section": "model", "tensor": name, "element": element})
        self.assertEqual(exit_codes("demo", "load", "--dir", wrong, ranks=3), [1, 1, 1])

    def test_a_save_that_reads_back(self):
        for how in ("all", "sample"):
            saved = self.save_at(self.folder / how, "--read-back", how, ranks=2)
            self.assertEqual(saved.code, 0, saved.err)
            self.assertRegex(saved.out, r"(?m)^read back +\d")
            result = cairn("demo", "save", "--dir", self.folder / how, "--model", f"@{self.shared}/tiny.json", "--step", 200,
                           "--read-back", how, ranks=2, CAIRN_FAULT="write:lie:path=.safetensors")
            self.assertEqual(result.code, 1, result.err)
            self.assertRegex("\n".join(result.errors), r"\.safetensors', which was just written, reads back otherwise: block \d")
            self.assertEqual([path.name for path in (self.folder / how).glob("checkpoint-*")], ["checkpoint-100"])
        self.assertNotIn("read back", self.saved.out)
        self.bad(2, "demo", "save", "--dir", self.folder, "--read-back", "some", says=["--read-back"])

    def test_a_failed_save_leaves_nothing_to_be_loaded(self):
        root = self.folder / "root"
        self.bad(1, "demo", "save", "--dir", root, "--model", f"@{self.shared}/tiny.json", "--engine", "posix", ranks=2,
                 CAIRN_FAULT="fsync:rank=1:errno=ENOSPC", says=["rank"])
        self.assertEqual(list(root.glob("checkpoint-*[0-9]")), [])
        self.bad(1, "demo", "load", "--dir", root, ranks=2, says=["no complete checkpoint", "demo save"])


class TwoUsers(CairnTest):
    """Two users and one root of checkpoints: --mode and --group, and nothing else, give the second user access."""

    GROUP = 4713  # has no members but those that the test adds
    STRICT = 0o077  # umask of both users

    @classmethod
    def user(cls, name, own_group, *groups):
        return {"user": name, "group": own_group, "extra_groups": list(groups), "umask": cls.STRICT, "cwd": "/"}

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("not root, who alone can start processes of two users")
        super().setUp()
        self.owner, self.member = self.user("daemon", 4711, self.GROUP), self.user("nobody", 4712, self.GROUP)
        self.stranger = self.user("nobody", 4712)
        (self.folder / "tiny.json").write_text(json.dumps(TINY))
        (self.folder / "theirs").mkdir()
        self.root = self.folder / "theirs" / "root"
        for path, mode in ((self.folder, 0o755), (self.folder / "tiny.json", 0o644), (self.root.parent, 0o777)):
            path.chmod(mode)
        if subprocess.run(["test", "-x", self.root.parent, "-a", "-x", CAIRN], check=False, **self.stranger).returncode != 0:
            self.skipTest("other users cannot reach the build or the folder of temporary files")

    def save(self, who, step, *access):
        return ("demo", "save", "--dir", self.root, "--model", f"@{self.folder}/tiny.json", "--layers", "1", "--step", step,
                *access), {"who": who}

    def assert_loads(self, who, ranks=None):
        self.assertIn("equal bit for bit", self.good("demo", "load", "--dir", self.root, who=who, ranks=ranks).out)

    def assert_refused(self, command, who):
        """A refusal by the system: one line that names the path in the root."""
        said = self.bad(1, *command, who=who, says=("Permission denied",)).errors[0]
        root = re.escape(str(self.root))
        self.assertRegex(said, rf"^cairn: error: ([a-z ]+ of '{root}[^']*' failed: Permission denied"
                               rf"|Permission denied: '{root}' cannot be written by this user \(uid \d+\); choose .*)$")

    def assert_saves(self, who, step, *access, ranks=None):
        command, options = self.save(who, step, *access)
        self.good(*command, ranks=ranks, **options)

    def test_a_member_of_the_group_loads_and_saves(self):
        shared = ("--mode", "660", "--group", self.GROUP)
        self.assert_saves(self.owner, 1, *shared, ranks=2)
        self.assert_loads(self.member, ranks=2)
        self.assert_saves(self.member, 2, *shared, ranks=2)
        self.assert_loads(self.owner)
        self.assertEqual(len({path.stat().st_uid for path in self.root.glob("checkpoint-*")}), 2)
        self.assert_saves(self.owner, 2, *shared, "--overwrite")  # replaces the other user's checkpoint
        self.assert_loads(self.member)

    def test_who_is_not_in_the_group_is_refused(self):
        self.assert_saves(self.owner, 1, "--mode", "660", "--group", self.GROUP)
        before = snapshot(self.root)
        self.assert_refused(("demo", "load", "--dir", self.root), self.stranger)
        self.assert_refused(self.save(self.stranger, 2)[0], self.stranger)
        self.assertEqual(snapshot(self.root), before)
        self.bad(2, *self.save(self.stranger, 2, "--group", self.GROUP)[0], who=self.stranger,
                 says=("this process is not in group", self.GROUP))

    def test_without_group_access_the_group_does_not_help(self):
        self.assert_saves(self.owner, 1)
        self.assert_refused(("demo", "load", "--dir", self.root), self.member)
        self.assert_refused(self.save(self.member, 2)[0], self.member)

    def test_a_group_that_may_only_read_loads_and_does_not_save(self):
        self.assert_saves(self.owner, 1, "--mode", "640", "--group", self.GROUP)
        before = snapshot(self.root)
        self.assert_loads(self.member)
        self.assert_refused(self.save(self.member, 2)[0], self.member)
        self.assertEqual(snapshot(self.root), before)
        self.assert_loads(self.owner)
        self.assertEqual(stat.S_IMODE(self.root.stat().st_mode), 0o750)


class NamedModel(CairnTest):
    def test_a_model_of_the_table(self):
        """The embeddings make it 400 MB, so it is tested once."""
        text = self.good("demo", "save", "--dir", self.folder, "--layers", "2", ranks=4).out
        self.assertIn("80 tensors", text)
        self.assertIn("80 tensors, ", self.good("demo", "load", "--dir", self.folder, "--layout", "fsdp=3", ranks=3).out)


if __name__ == "__main__":
    main()
