"""Directories that are damaged, mixed up or malicious: one clear line that names file and tensor, and nothing is
written."""

import json
import struct

from program import CairnTest, cairn, main, snapshot
from small_files import FIRST, INDEX, SECOND, counting, two_shards, write_index, write_raw, write_safetensors

GOOD_MAP = {"a.weight": FIRST, "b.weight": SECOND, "c.bias": SECOND}


def index_leaves_the_directory(folder):
    write_index(folder, {**GOOD_MAP, "a.weight": "../secret/model.safetensors"})
    return [INDEX, "../secret"]


def index_is_absolute(folder):
    write_index(folder, {**GOOD_MAP, "a.weight": str(folder.parent / "secret" / "model.safetensors")})
    return [INDEX, "secret/model.safetensors"]


def file_is_a_git_lfs_pointer(folder):
    (folder / SECOND).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1234\n")
    return [SECOND, "git"]


def shard_of_an_older_save(folder):
    write_safetensors(folder / "model-00003-of-00003.safetensors", {"old.weight": counting("F32", [2])})
    return ["model-00003-of-00003.safetensors"]


def name_in_two_files(folder):
    write_safetensors(folder / SECOND, {"a.weight": counting("F32", [4, 6]), "b.weight": counting("F32", [6, 4]),
                                        "c.bias": counting("F32", [5])})
    return ["a.weight", FIRST, SECOND]


def file_is_missing(folder):
    (folder / SECOND).unlink()
    return [SECOND]


def file_is_cut_off(folder):
    content = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(content[:-3])
    return [SECOND]


def file_is_too_long(folder):
    with (folder / SECOND).open("ab") as stream:
        stream.write(b"more")
    return [SECOND]


def tensors_overlap(folder):
    header = {"b.weight": {"dtype": "F32", "shape": [6, 4], "data_offsets": [0, 96]},
              "c.bias": {"dtype": "F32", "shape": [5], "data_offsets": [80, 100]}}
    write_raw(folder / SECOND, header, bytes(100))
    return [SECOND, "c.bias"]


def tensor_is_not_in_its_file(folder):
    write_index(folder, {**GOOD_MAP, "d.weight": SECOND})
    return ["d.weight", SECOND]


def shape_does_not_fit_its_bytes(folder):
    header = {"b.weight": {"dtype": "F32", "shape": [6, 5], "data_offsets": [0, 96]},
              "c.bias": {"dtype": "F32", "shape": [5], "data_offsets": [96, 116]}}
    write_raw(folder / SECOND, header, bytes(116))
    return [SECOND, "b.weight"]


def shape_overflows(folder):
    header = {"b.weight": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 96]},
              "c.bias": {"dtype": "F32", "shape": [5], "data_offsets": [96, 116]}}
    write_raw(folder / SECOND, header, bytes(116))
    return [SECOND, "b.weight"]


def header_claims_an_exabyte(folder):
    (folder / SECOND).write_bytes(struct.pack("<Q", 2**60) + b"{}")
    return [SECOND]


def header_nests_too_deeply(folder):
    write_raw(folder / SECOND, b'{"x":' + b"[" * 200_000, b"")
    return [SECOND]


def index_is_no_json(folder):
    (folder / INDEX).write_text('{"weight_map": {')
    return [INDEX]


def index_nests_too_deeply(folder):
    (folder / INDEX).write_text('{"metadata":' + "[" * 200_000)
    return [INDEX]


def index_names_a_tensor_twice(folder):
    (folder / INDEX).write_text(f'{{"weight_map": {{"a.weight": "{FIRST}", "a.weight": "{SECOND}"}}}}')
    return [FIRST, f"{INDEX} does not list this file"]  # the last one counts, as in Python


def no_safetensors_at_all(folder):
    for path in folder.iterdir():
        path.unlink()
    return [folder.name]


CASES = [
    index_leaves_the_directory, index_is_absolute, file_is_a_git_lfs_pointer, shard_of_an_older_save, name_in_two_files,
    file_is_missing, file_is_cut_off, file_is_too_long, tensors_overlap, tensor_is_not_in_its_file,
    shape_does_not_fit_its_bytes, shape_overflows, header_claims_an_exabyte, header_nests_too_deeply, index_is_no_json,
    index_nests_too_deeply, index_names_a_tensor_twice, no_safetensors_at_all,
]


class Hostile(CairnTest):
    def make(self, case):
        """The broken directory next to an intact one, and the words that a message must have."""
        folder = self.folder / case.__name__ / "checkpoint"
        two_shards(folder)
        secret = folder.parent / "secret" / "model.safetensors"
        write_safetensors(secret, {"a.weight": counting("F32", [4, 6])})
        return folder, case(folder)

    def test_inspect_and_convert_refuse_by_name(self):
        for case in CASES:
            with self.subTest(case=case.__name__):
                folder, words = self.make(case)
                before = snapshot(self.folder)
                self.bad(1, "inspect", folder, says=words)
                self.bad(1, "convert", folder, self.folder / "out", says=words)
                self.assertEqual(snapshot(self.folder), before)

    def test_verify_names_the_fault_on_standard_output(self):
        for case in CASES:
            with self.subTest(case=case.__name__):
                folder, words = self.make(case)
                result = cairn("verify", folder)
                self.assertEqual(result.code, 1, result.err + result.out)
                told = result.out + result.err
                self.assertEqual(len([line for line in told.splitlines() if "fault: " in line or "error: " in line]), 1, told)
                for word in words:
                    self.assertIn(word, told)

    def test_on_ranks(self):
        for case in (index_leaves_the_directory, file_is_cut_off, name_in_two_files):
            with self.subTest(case=case.__name__):
                folder, words = self.make(case)
                before = snapshot(self.folder)
                self.bad(1, "convert", folder, self.folder / "out", ranks=3, says=words)
                self.assertEqual(snapshot(self.folder), before)

    def test_a_name_that_steers_the_terminal_is_escaped_in_the_message(self):
        folder = self.folder / "checkpoint"
        two_shards(folder)
        write_index(folder, {**GOOD_MAP, "\x1b[2Jgone\nname": SECOND})
        result = self.bad(1, "inspect", folder, says=["gone"])
        self.assertNotIn("\x1b", result.err)


# An 8-bit CSI, marks that change the direction of writing, an invisible character.
UNSEEN = "\x9b31m\u202egnp\u2066\u200b"


class UnseenNames(CairnTest):
    """Names that a terminal would obey are escaped in every output."""

    def setUp(self):
        super().setUp()
        self.checkpoint = self.folder / ("a" + UNSEEN)
        self.name = "w" + UNSEEN
        write_safetensors(self.checkpoint / f"set{UNSEEN}.safetensors", {self.name: counting("F32", [4])},
                          {"key" + UNSEEN: "value" + UNSEEN})
        (self.checkpoint / ("note" + UNSEEN)).write_text("text")
        (self.checkpoint / "config.json").write_text(json.dumps({"transformers_version": UNSEEN}))

    def check(self, result):
        for character in UNSEEN:
            if not character.isascii():
                self.assertNotIn(character, result.out + result.err)
        return result

    def test_in_tables_documents_and_messages(self):
        other = self.folder / ("b" + UNSEEN)
        for arguments in (["inspect"], ["inspect", "--tensors"], ["inspect", "--metadata"], ["verify"]):
            with self.subTest(arguments=arguments):
                result = self.check(self.good(arguments[0], self.checkpoint, *arguments[1:]))
                self.assertIn("\\xc2\\x9b31m\\xe2\\x80\\xaegnp", result.out)
        self.check(self.good("convert", self.checkpoint, other))
        self.check(self.good("diff", self.checkpoint, other))
        self.check(self.good("ls", self.folder))
        document = self.check(self.good("inspect", self.checkpoint, "--json")).json()
        self.assertIn(self.name, [tensor["name"] for tensor in document["tensors"]])
        write_safetensors(other / "more.safetensors", {self.name: counting("F32", [4])})
        self.check(self.bad(1, "inspect", other, says=["\\xe2\\x80\\xae"]))


class HostileManifest(CairnTest):
    def setUp(self):
        super().setUp()
        two_shards(self.folder / "source")
        self.checkpoint = self.folder / "root" / "checkpoint-1"
        self.good("convert", self.folder / "source", self.checkpoint)

    def rewrite(self, old, new):
        path = self.checkpoint / "cairn.json"
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new))

    def test_a_manifest_that_leaves_the_directory(self):
        self.rewrite(f'"{next(self.checkpoint.glob("*.safetensors")).name}"', '"../../source/config.json"')
        self.bad(1, "inspect", self.checkpoint, says=["cairn.json", "../../source/config.json"])
        entry = self.good("ls", self.checkpoint.parent, "--json").json()["checkpoints"][0]
        self.assertEqual(entry["state"], "incomplete")
        self.assertIn("../../source/config.json", entry["problem"])

    def test_a_manifest_of_a_newer_version(self):
        document = json.loads((self.checkpoint / "cairn.json").read_text())
        key = next(key for key in document if "version" in key)
        document[key] = 1000
        (self.checkpoint / "cairn.json").write_text(json.dumps(document))
        self.bad(1, "inspect", self.checkpoint, says=["cairn.json", "1000"])

    def test_a_manifest_that_is_no_json(self):
        (self.checkpoint / "cairn.json").write_text("{")
        self.bad(1, "inspect", self.checkpoint, says=["cairn.json"])
        result = cairn("verify", self.checkpoint)
        self.assertEqual(result.code, 1)
        self.assertIn("cairn.json", result.out)


if __name__ == "__main__":
    main()
