"""`cairn` with staging files: one .h5 written and read by any number of ranks, nothing half done, one line for files
that are not staging files."""

import os

from program import CairnTest, cairn, main, snapshot
from small_files import counting, read_checkpoint, two_shards, write_safetensors


class Staging(CairnTest):
    def setUp(self):
        super().setUp()
        self.source = self.folder / "source"
        self.tensors = {name: tensor for tensors in two_shards(self.source).values() for name, tensor in tensors.items()}
        self.file = self.folder / "state.h5"
        self.back = self.folder / "back"
        if "HDF5: none" in cairn("--version").out:
            self.bad(2, "convert", self.source, self.file, says=["this build of Cairn has no HDF5"])
            self.skipTest("this build has no HDF5; it says so")

    def test_there_and_back(self):
        text = self.good("convert", self.source, self.file, ranks=3).out
        self.assertIn(f"converted 3 tensors, 212 B, into 1 file of {self.file}", text)
        for ranks in (None, 4):
            self.good("convert", self.file, self.folder / f"back-{ranks}", ranks=ranks)
            self.assertEqual(read_checkpoint(self.folder / f"back-{ranks}"), self.tensors)
            self.assertEqual((self.folder / f"back-{ranks}/config.json").read_bytes(),
                             (self.source / "config.json").read_bytes())
        self.assertEqual(self.good("diff", self.file, self.source, ranks=2).out, "equal: 3 tensors, 212 bytes compared\n")

    def test_keeps_step_run_and_metadata(self):
        self.good("demo", "save", "--dir", self.folder / "root", "--layers", "1", "--step", "42", "--layout", "fsdp=2", ranks=2)
        self.good("convert", self.folder / "root", self.file, ranks=2)
        self.good("convert", self.file, self.back, ranks=3)
        kept = [self.good("inspect", path, "--json").json()
                for path in (self.folder / "root/checkpoint-42", self.file, self.back)]
        for key in ("step", "run_id", "layout", "ranks", "metadata", "quantisation"):
            self.assertEqual(kept[1]["manifest"][key], kept[0]["manifest"][key], key)
            self.assertEqual(kept[2]["manifest"][key], kept[0]["manifest"][key], key)
        self.assertEqual(kept[1]["manifest"]["step"], 42)
        self.assertEqual(kept[1]["totals"]["size_bytes"], kept[0]["totals"]["size_bytes"])
        self.assertEqual(kept[1]["carried"], kept[0]["carried"])
        self.assertIn("good:", self.good("verify", self.back, ranks=2).out)

    def test_inspect_and_verify(self):
        self.good("convert", self.source, self.file)
        document = self.good("inspect", self.file, "--json").json()
        self.assertEqual(document["dialect"], "HDF5 staging file")
        self.assertFalse(document["has_checksums"])
        self.assertEqual([file["name"] for file in document["files"]], ["state.h5"])
        content = self.file.read_bytes()
        for tensor in document["tensors"]:
            at = tensor["boxes"][0]["offset_bytes"]
            self.assertEqual(content[at : at + tensor["size_bytes"]], self.tensors[tensor["name"]][2])
        self.assertEqual(len(document["tensors"]), 3)
        self.assertIn("HDF5 staging file", self.good("inspect", self.file, ranks=2).out)
        self.assertIn("nothing to verify", self.good("verify", self.file).out)

    def test_wrong_usage(self):
        self.good("convert", self.source, self.file)
        before = self.file.read_bytes()
        self.bad(2, "convert", self.source, self.file, ranks=2, says=["state.h5", "exists already"])
        self.assertEqual(self.file.read_bytes(), before)
        self.bad(2, "convert", self.source, self.folder / "x.h5", "--to", "shards", "--layout", "fsdp=2", says=["shards"])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["source", "state.h5"])

    def test_names_that_could_not_be_given_back(self):
        for name in (b"a\\b.json", b"c:x.json", b"\xff.json", b"a\\b.safetensors", b"\xff.safetensors"):
            with self.subTest(name):
                path = os.path.join(os.fsencode(self.source), name)
                write_safetensors(self.source / "new", {"x": counting("F32", [2])})
                os.rename(self.source / "new", path)
                says = "section '" if name.endswith(b".safetensors") else "cannot be carried along"
                self.bad(2, "convert", self.source, self.file, says=[says])
                self.assertEqual(os.listdir(self.folder), ["source"])
                os.unlink(path)

    def test_damaged_and_foreign_files(self):
        self.good("convert", self.source, self.file)
        content = self.file.read_bytes()
        for name, bad in (("short", content[:-1]), ("cut", content[:600]), ("empty", b""), ("text", b"a" * 9000),
                          ("flipped", content[:20] + bytes([content[20] ^ 1]) + content[21:])):
            with self.subTest(name):
                self.file.write_bytes(bad)
                for command in (("inspect", self.file), ("convert", self.file, self.back), ("diff", self.source, self.file)):
                    self.bad(1, *command, ranks=2, says=["state.h5"])
                self.assertFalse(self.back.exists())

    def test_nothing_is_left_after_a_failure(self):
        before = snapshot(self.source)
        for fault in ("write:after=1", "fsync", "stage.skeleton", "rename:errno=ENOSPC", "stage.rename:rank=2",
                      "open:path=.partial/state.h5:errno=ENOSPC"):
            with self.subTest(fault):
                self.bad(1, "convert", self.source, self.file, "--engine", "posix", ranks=3, CAIRN_FAULT=fault)
                self.assertEqual([path.name for path in self.folder.iterdir()], ["source"])
        self.assertEqual(snapshot(self.source), before)
        left = "state.h5.0123456789abcdef.partial"  # as left by a crash or by a run that is still alive
        for name in left, "state.h5.partial":
            (self.folder / name).mkdir()
            (self.folder / name / "skeleton").write_bytes(b"half")
        result = self.good("convert", self.source, self.file, ranks=3)
        self.assertTrue(any(left in line and "remove it" in line for line in result.warnings), result.err)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["source", "state.h5", left, "state.h5.partial"])

    def test_engines_write_the_same_bytes(self):
        files = []
        for engine in ("posix", "direct", "mpiio"):
            files.append(self.folder / f"{engine}.h5")
            self.good("convert", self.source, files[-1], "--engine", engine, ranks=2)
            self.good("convert", files[-1], self.folder / engine, "--engine", engine, ranks=3)
        self.assertEqual(len({file.read_bytes() for file in files}), 1)
        folders = [snapshot(self.folder / engine) for engine in ("posix", "direct", "mpiio")]
        self.assertTrue(all(folder == folders[0] for folder in folders))


if __name__ == "__main__":
    main()
