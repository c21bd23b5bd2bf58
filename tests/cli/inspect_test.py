"""`cairn inspect` and `cairn ls`: tables and JSON of files, directories and roots."""

import json
import shutil

import small_files
from program import CairnTest, cairn, main


class Inspect(CairnTest):
    def test_a_file(self):
        path = self.folder / "model.safetensors"
        tensors = {"w": small_files.counting("F32", [3, 4]), "scalar": small_files.counting("I64", []),
                   "none": small_files.counting("F64", [0, 7])}
        small_files.write_safetensors(path, tensors, {"format": "pt", "note": "héllo"})
        text = self.good("inspect", path).out
        for word in ("w", "F32", "[3, 4]", "48", "scalar", "[]", "model.safetensors", "nothing to verify against", "héllo"):
            self.assertIn(word, text)
        document = self.good("inspect", path, "--json").json()
        self.assertEqual(document["totals"], {"tensors": 3, "elements": 13, "size_bytes": 56, "files": 1})
        self.assertEqual([row["size_bytes"] for row in document["files"]], [path.stat().st_size])
        self.assertEqual(document["files"][0]["metadata"], {"format": "pt", "note": "héllo"})
        rows = {row["name"]: row for row in document["tensors"]}
        self.assertEqual(set(rows), set(tensors))
        self.assertEqual((rows["w"]["dtype"], rows["w"]["shape"], rows["w"]["size_bytes"]), ("F32", [3, 4], 48))
        box = rows["w"]["boxes"][0]
        (first,) = path.read_bytes()[box["offset_bytes"] : box["offset_bytes"] + 1]
        self.assertEqual((box["file"], box["offset"], box["shape"], first), ("model.safetensors", [0, 0], [3, 4], 0))
        self.assertIsNone(document["manifest"])
        self.assertFalse(document["has_checksums"])

    def test_json_is_written_as_python_writes_it(self):
        """Indents, commas and escapes of the list that is printed piece by piece."""
        path = self.folder / "model.safetensors"
        names = ["plain", 'quote"back\\slash', "tab\tline\nend", "héllo", "\U0001f600", "\x01", ""]
        tensors = {name: small_files.counting("F32", [2, 3]) for name in names}
        tensors["scalar"] = small_files.counting("I64", [])
        tensors["none"] = small_files.counting("F64", [0, 7])
        for content in (tensors, {}):
            small_files.write_safetensors(path, content)
            text = self.good("inspect", path, "--json").out
            document = json.loads(text)
            self.assertEqual({row["name"] for row in document["tensors"]}, set(content))
            self.assertEqual(text, json.dumps(document, indent=2, ensure_ascii=False) + "\n")

    def test_an_empty_file(self):
        path = self.folder / "model.safetensors"
        small_files.write_safetensors(path, {})
        self.assertEqual(self.good("inspect", path, "--json").json()["tensors"], [])
        self.assertIn("0 tensors", self.good("inspect", path).out)

    def test_a_directory_alone_and_on_ranks(self):
        files = small_files.two_shards(self.folder)
        document = self.good("inspect", self.folder, "--json").json()
        self.assertEqual({row["name"]: row["tensors"] for row in document["files"]},
                         {name: len(tensors) for name, tensors in files.items()})
        self.assertEqual({row["name"]: row["boxes"][0]["file"] for row in document["tensors"]},
                         {tensor: name for name, tensors in files.items() for tensor in tensors})
        self.assertEqual(document["sections"][0]["name"], "model")
        self.assertIn("config.json", document["carried"])
        self.assertEqual(self.good("inspect", self.folder, "--json", ranks=3).json(), document)

    def test_a_wrong_total_size_is_a_note(self):
        files = small_files.two_shards(self.folder)
        self.assertEqual(self.good("inspect", self.folder, "--json").json()["notes"], [])
        weight_map = {tensor: name for name, tensors in files.items() for tensor in tensors}
        small_files.write_index(self.folder, weight_map, total_size=1)
        (note,) = self.good("inspect", self.folder, "--json").json()["notes"]
        self.assertIn("total_size", note)
        self.assertEqual(self.good("inspect", self.folder).out.count("total_size"), 1)
        result = self.good("verify", self.folder, ranks=2)
        self.assertEqual(len([line for line in result.warnings if "total_size" in line]), 1, result.err)

    def test_only_the_tables_that_are_asked_for(self):
        small_files.two_shards(self.folder)
        text = self.good("inspect", self.folder, "--files").out
        self.assertIn(small_files.SECOND, text)
        self.assertNotIn("a.weight", text)
        text = self.good("inspect", self.folder, "--tensors", "--sections").out
        self.assertIn("a.weight", text)
        self.assertRegex(text, r"(?m)^section +tensors")

    def test_names_cannot_steer_the_terminal(self):
        path = self.folder / "model.safetensors"
        name = "evil\x1b[2J\nname"
        small_files.write_safetensors(path, {name: small_files.counting("F32", [1])})
        text = self.good("inspect", path).out
        self.assertNotIn("\x1b", text)
        self.assertIn("evil\\x1b[2J\\x0aname", text)
        self.assertEqual(self.good("inspect", path, "--json").json()["tensors"][0]["name"], name)


class Root(CairnTest):
    """A root with checkpoints 10 and 200, a partial one, and one without a manifest."""

    def setUp(self):
        super().setUp()
        source = self.folder / "source"
        small_files.two_shards(source)
        self.root = self.folder / "root"
        self.root.mkdir()
        for step in (10, 200):
            self.good("convert", source, self.root / f"checkpoint-{step}")
        shutil.copytree(source, self.root / "checkpoint-300")
        (self.root / "checkpoint-400.0123456789abcdef.partial").mkdir()
        (self.root / "notes").mkdir()

    def test_ls_tells_what_is_complete_and_why_not(self):
        document = self.good("ls", self.root, "--json").json()
        self.assertEqual(document["newest_complete_step"], 200)
        states = {row["step"]: row["state"] for row in document["checkpoints"]}
        self.assertEqual(states, {10: "complete", 200: "complete", 300: "foreign", 400: "partial"})
        rows = {row["step"]: row for row in document["checkpoints"]}
        size = sum(path.stat().st_size for path in (self.root / "checkpoint-10").glob("*.safetensors"))
        self.assertEqual((rows[10]["size_bytes"], rows[10]["problem"]), (size, ""))
        self.assertIn("cairn.json", rows[300]["problem"])
        self.assertEqual((rows[300]["dialect"], rows[300]["files"], rows[10]["dialect"]), ("Hugging Face", 2, ""))
        text = self.good("ls", self.root, ranks=2).out
        self.assertIn("4 checkpoints", text)
        self.assertIn("2 complete", text)
        self.assertRegex(text, "300 +foreign .* of Hugging Face, no checksums")
        (self.root / "checkpoint-200" / "config.json").unlink()
        rows = {row["step"]: row for row in self.good("ls", self.root, "--json").json()["checkpoints"]}
        self.assertEqual(rows[200]["state"], "incomplete")
        self.assertIn("config.json", rows[200]["problem"])

    def test_ls_of_checkpoints_of_other_systems_in_parts(self):
        other = self.folder / "other"
        second = other / "checkpoint-300" / small_files.SECOND
        second.parent.mkdir(parents=True)
        (self.root / "checkpoint-300" / small_files.SECOND).rename(second)
        (row,) = [row for row in self.good("ls", self.root, "--json").json()["checkpoints"] if row["step"] == 300]
        self.assertEqual(row["state"], "incomplete")
        self.assertIn(small_files.SECOND, row["problem"])
        rows = self.good("ls", self.root, "--part", other, "--json").json()["checkpoints"]
        self.assertEqual([(row["step"], row["state"]) for row in rows],
                         [(10, "complete"), (200, "complete"), (300, "foreign"), (400, "partial")])
        shutil.rmtree(self.root / "checkpoint-300")
        (row,) = [row for row in self.good("ls", self.root, "--part", other, "--json").json()["checkpoints"] if row["step"] == 300]
        self.assertEqual((row["state"], row["directory"]), ("incomplete", str(other / "checkpoint-300")))

    def test_ls_of_nothing(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.assertIn("0 checkpoints", self.good("ls", empty).out)
        self.assertEqual(self.good("ls", empty, "--json").json()["checkpoints"], [])
        self.bad(1, "ls", self.folder / "source" / "config.json", says=["config.json"])

    def test_a_root_stands_for_its_newest_complete_checkpoint(self):
        document = self.good("inspect", self.root, "--json").json()
        self.assertTrue(document["path"].endswith("checkpoint-200"), document["path"])
        self.assertTrue(document["has_checksums"])
        self.assertTrue(any("checkpoint-300" in note for note in document["notes"]), document["notes"])
        text = self.good("verify", self.root).out
        self.assertIn("checkpoint-200", text)
        self.assertIn("note: checkpoint-300 is of a higher step: it is a checkpoint of Hugging Face", text)
        self.assertIn("good:", text)

    def test_a_root_whose_newest_checkpoint_has_lost_a_file_is_bad(self):
        (self.root / "checkpoint-200" / "config.json").unlink()
        result = cairn("verify", self.root)
        self.assertEqual(result.code, 1, result.err + result.out)
        self.assertIn("fault: checkpoint-200 is newer but not complete: config.json is missing", result.out)
        self.assertFalse(cairn("verify", self.root, "--json", ranks=2).json()["good"])

    def test_a_root_without_a_complete_checkpoint(self):
        for step in (10, 200):
            (self.root / f"checkpoint-{step}" / "cairn.json").unlink()
        self.bad(1, "verify", self.root, says=["checkpoint-200", "may be the newest", "cairn.json is missing"])
        for step in (10, 200):
            (self.root / f"checkpoint-{step}" / "cairn.blocks").unlink()
        self.bad(1, "verify", self.root, says=["no complete checkpoint", "checkpoint-300"])
        self.bad(1, "inspect", self.root / "checkpoint-400.0123456789abcdef.partial", says=["checkpoint-400.0123456789abcdef.partial"])

    def test_a_manifest_is_shown(self):
        manifest = json.loads((self.root / "checkpoint-10" / "cairn.json").read_text())
        document = self.good("inspect", self.root / "checkpoint-10", "--json").json()
        self.assertEqual(document["manifest"]["tool"], manifest["tool"])


if __name__ == "__main__":
    main()
