"""`cairn demo`: two layers of a real model, saved by four ranks, loaded by 4, 3 and 8, and every kind of difference seen."""

import json
import shutil
import struct

from program import CairnTest, cairn, exit_codes, main
from small_files import read_safetensors

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
SAVE = ("--model", "smollm2-135m", "--layers", "2")


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def hash_text(value, text):
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def expected_bytes(section, name, dtype, first_word, words):
    """What src/cli/demo_values.hpp says of 8-byte words of a tensor."""
    seed = mix(hash_text(hash_text(0xCBF29CE484222325, section) * GOLDEN & MASK, name))
    lane, base = {"BF16": (0x83FF83FF83FF83FF, 0x3B803B803B803B80), "F32": (0x83FFFFFF83FFFFFF, 0x3B8000003B800000)}[dtype]
    if name.endswith("/moment2_0"):
        lane &= ~0x8000000080000000
    out = b""
    for word in range(first_word, first_word + words):
        out += struct.pack("<Q", (mix((seed + word * GOLDEN) & MASK) & lane) + base)
    return out


class Demo(CairnTest):
    def save(self, root, *arguments, ranks=4):
        return self.good("demo", "save", "--dir", root, *SAVE, "--max-file-size", "75MB", *arguments, ranks=ranks)

    def test_save_then_load_in_other_layouts(self):
        root = self.folder / "root"
        text = self.save(root).out
        self.assertRegex(text, r"(?m)^generate +\d")
        self.assertRegex(text, r"(?m)^total +\d")
        self.assertIn("tp=2,pp=2", text)
        checkpoint = root / "checkpoint-100"
        self.check_files(checkpoint)
        self.assertIn("good:", self.good("verify", root, ranks=2).out)
        for ranks, layout in ((4, "tp=2,pp=2"), (3, "fsdp=3"), (8, "tp=2,pp=2,dp=2"), (1, "fsdp=1")):
            with self.subTest(ranks=ranks, layout=layout):
                self.check_load(root, ranks, layout)
        self.check_usage_of_load(root)
        self.check_step_exists(root)
        self.check_damage(root, checkpoint)

    def check_files(self, checkpoint):
        """Files and values, read without Cairn."""
        names = {path.name for path in checkpoint.iterdir()}
        self.assertGreater(len([name for name in names if name.startswith("optimizer-")]), 1, names)
        self.assertLessEqual({"config.json", "trainer_state.json", "cairn.json", "cairn.blocks"}, names)
        self.assertEqual(json.loads((checkpoint / "config.json").read_text())["num_hidden_layers"], 2)
        compared = 0
        for path in sorted(checkpoint.glob("*.safetensors")):
            if path.name == "rank_state.safetensors":
                continue  # the ranks' blobs, which load compares
            section = path.name.split("-0")[0].removesuffix(".safetensors")
            for name, (dtype, _, data) in read_safetensors(path)[0].items():
                for word in (0, len(data) // 16, len(data) // 8 - 4):
                    self.assertEqual(data[8 * word : 8 * word + 32], expected_bytes(section, name, dtype, word, 4), name)
                    compared += 4
        self.assertGreater(compared, 300)

    def check_load(self, root, ranks, layout):
        document = self.good("demo", "load", "--dir", root, "--layout", layout, "--json", ranks=ranks).json()
        sections = self.good("inspect", root, "--json").json()["sections"]
        saved = [row for row in sections if row["name"] != "rank_state"]
        self.assertEqual([row["name"] for row in saved], ["model", "optimizer", "master_weights"])
        size = sum(row["size_bytes"] for row in saved)
        self.assertTrue(document["equal"])
        self.assertEqual(document["tensors"], sum(row["tensors"] for row in saved))
        self.assertGreaterEqual(document["size_bytes_compared"], size)
        if "fsdp" in layout:
            self.assertEqual(document["size_bytes_compared"], size)

    def check_usage_of_load(self, root):
        self.bad(2, "demo", "load", "--dir", root, "--layout", "tp=2,pp=2", ranks=3, says=["4 ranks", "3 run", "mpirun -n 4"])
        self.bad(2, "demo", "load", "--dir", root, "--layout", "sideways=3", ranks=3, says=["sideways"])
        self.bad(1, "demo", "load", "--dir", root, "--model", "smollm2-135m", "--layers", "3", ranks=2)
        text = self.good("demo", "load", "--dir", root, "--layout", "fsdp=2", ranks=2).out
        self.assertRegex(text, r"(?m)^[\d,]+ tensors, [\d,]+ bytes equal bit for bit$")

    def check_step_exists(self, root):
        self.bad(2, "demo", "save", "--dir", root, *SAVE, ranks=2, says=["checkpoint-100"])
        self.good("demo", "save", "--dir", root, *SAVE, "--overwrite", "--layout", "fsdp=2", ranks=2)
        self.save(root, "--overwrite")

    def check_damage(self, root, checkpoint):
        """A bit flipped on disk is the checksum's to find; values that were saved wrong are the comparison's."""
        path = checkpoint / "model.safetensors"
        content = bytearray(path.read_bytes())
        content[-8] ^= 1
        path.write_bytes(content)
        self.bad(1, "demo", "load", "--dir", root, ranks=3, says=["model.safetensors"])
        plain = self.folder / "plain"
        shutil.copytree(checkpoint, plain)
        for name in ("cairn.json", "cairn.blocks"):
            (plain / name).unlink()
        self.good("convert", plain, self.folder / "wrong" / "checkpoint-7")
        name, element = self.last_tensor(plain / "model.safetensors")
        wrong = self.folder / "wrong"
        for ranks, layout in ((1, "fsdp=1"), (4, "tp=2,pp=2")):
            self.bad(1, "demo", "load", "--dir", wrong, "--layout", layout, ranks=ranks,
                     says=["section model", f"'{name}'", f"element {element}:"])
        document = cairn("demo", "load", "--dir", wrong, "--json", ranks=3).json()
        self.assertEqual(document["first_difference"], {"section": "model", "tensor": name, "element": element})
        self.assertEqual(exit_codes("demo", "load", "--dir", wrong, ranks=3), [1, 1, 1])

    def last_tensor(self, path):
        """Name of the tensor at the end of the file, and the element that holds its eighth byte from the end."""
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        header.pop("__metadata__", None)
        name = max(header, key=lambda key: header[key]["data_offsets"])
        begin, end = header[name]["data_offsets"]
        self.assertEqual(header[name]["dtype"], "BF16")
        return name, (end - 8 - begin) // 2


class Nothing(CairnTest):
    def test_no_checkpoint_to_load(self):
        (self.folder / "root").mkdir()
        self.bad(1, "demo", "load", "--dir", self.folder / "root", ranks=2, says=["no complete checkpoint", "demo save"])

    def test_a_failed_save_leaves_nothing_to_be_loaded(self):
        root = self.folder / "root"
        self.bad(1, "demo", "save", "--dir", root, *SAVE, "--engine", "posix", ranks=2, CAIRN_FAULT="fsync:rank=1:errno=ENOSPC")
        self.assertEqual(list(root.glob("checkpoint-*[0-9]")), [])
        self.bad(1, "demo", "load", "--dir", root, ranks=2)


if __name__ == "__main__":
    main()
