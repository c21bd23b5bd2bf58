"""`cairn demo`: a training state saved by four ranks, loaded by 4, 3, 8 and 1, and every kind of difference seen."""

import json
import pathlib
import shutil
import struct
import tempfile

from program import CairnTest, cairn, exit_codes, main
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
    """What src/bench/demo_state.hpp says of 8-byte words of a tensor."""
    seed = mix(hash_text(hash_text(0xCBF29CE484222325, section) * GOLDEN & MASK, name))
    lane, base = LANES[dtype]
    if name.endswith("/moment2_0"):
        lane &= ~0x8000000080000000
    numbers = [(mix((seed + word * GOLDEN) & MASK) & lane) + base for word in range(first_word, first_word + words)]
    return struct.pack(f"<{words}Q", *numbers)


def place_of(path, offset):
    """Name of the BF16 tensor that holds the byte of the file, and its element."""
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
    """Tests of one checkpoint of a small model, of which each takes a copy when it changes it."""

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


class NamedModel(CairnTest):
    def test_a_model_of_the_table(self):
        """The embeddings make it 400 MB: once is enough."""
        text = self.good("demo", "save", "--dir", self.folder, "--layers", "2", ranks=4).out
        self.assertIn("80 tensors", text)
        self.assertIn("80 tensors, ", self.good("demo", "load", "--dir", self.folder, "--layout", "fsdp=3", ranks=3).out)


if __name__ == "__main__":
    main()
