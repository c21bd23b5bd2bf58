"""The other content that `cairn convert` takes from its source, and the links that it follows."""

import hashlib
import json
import os
import subprocess

from program import CAIRN, CairnTest, Paused, cairn, environment, main, snapshot
from small_files import INDEX, FIRST, SECOND, counting, read_checkpoint, read_safetensors, two_shards, write_manifest, write_safetensors


def peak_bytes(*arguments):
    """The largest resident memory of the program, started alone; it must succeed."""
    started = subprocess.Popen([str(CAIRN), *map(str, arguments)], env=environment({}), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = started.stdout.read()
    _, status, usage = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    assert status == 0, said
    started.stdout.close()
    return usage.ru_maxrss * 1024


class Links(CairnTest):
    def setUp(self):
        super().setUp()
        self.source = self.folder / "source"
        self.tensors = {name: tensor for file in two_shards(self.source).values() for name, tensor in file.items()}
        self.elsewhere = self.folder / "elsewhere"
        self.elsewhere.mkdir()
        self.out = self.folder / "out"

    def move_out(self, name):
        (self.source / name).rename(self.elsewhere / name)
        (self.source / name).symlink_to(self.elsewhere / name)

    def test_links_that_lead_out_are_refused_unless_they_are_to_be_followed(self):
        two_shards(self.folder / "same")
        convert = ["convert", self.source, self.out]
        others = [["inspect", self.source], ["verify", self.source], ["diff", self.source, self.folder / "same"],
                  ["diff", self.folder / "same", self.source]]
        for name, commands in (("config.json", [*others, convert]), (FIRST, [convert]), (INDEX, [convert])):
            self.move_out(name)
            for command in commands:
                with self.subTest(name=name, command=command[0]):
                    result = self.bad(1, *command, ranks=2 if name == FIRST else None,
                                      says=[self.source / name, self.elsewhere / name, "--follow-links"])
                    self.assertEqual(result.out, "")
                    self.assertFalse(self.out.exists())
                    self.good(*command, "--follow-links")
            self.assertEqual(read_checkpoint(self.out), self.tensors)
            self.assertFalse(any(path.is_symlink() for path in self.out.iterdir()))
            for path in self.out.iterdir():
                path.unlink()
            self.out.rmdir()
            (self.source / name).unlink()
            (self.elsewhere / name).rename(self.source / name)

    def test_links_inside_and_a_directory_named_by_a_link_are_fine(self):
        (self.source / "other.json").symlink_to("config.json")
        (self.folder / "named").symlink_to(self.source)
        self.good("convert", self.folder / "named", self.out)
        self.assertEqual((self.out / "other.json").read_bytes(), (self.source / "config.json").read_bytes())
        self.assertFalse((self.out / "other.json").is_symlink())
        (self.folder / "one.safetensors").symlink_to(self.source / FIRST)
        self.good("inspect", self.folder / "one.safetensors")

    def test_the_manifest_leads_nowhere_else(self):
        self.good("convert", self.source, self.out)
        self.source = self.out
        self.move_out("cairn.json")
        for command in ("inspect", "verify"):
            self.bad(1, command, self.out, says=[self.out / "cairn.json", "--follow-links"])
            self.good(command, self.out, "--follow-links")

    def test_a_hugging_face_cache_needs_no_flag(self):
        model = self.folder / "models--some--model"
        snapshot = model / "snapshots" / "0123abc"
        (model / "blobs").mkdir(parents=True)
        snapshot.mkdir(parents=True)
        for path in sorted(self.source.iterdir()):
            content = path.read_bytes()
            digest = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # as git computes it
            path.rename(model / "blobs" / digest)
            (snapshot / path.name).symlink_to(f"../../blobs/{digest}")
        for path in (snapshot, self.link_to(snapshot)):
            self.good("inspect", path)
            self.assertIn("structure good", self.good("verify", path).out)
        self.good("convert", snapshot, self.out, ranks=2)
        self.assertEqual(read_checkpoint(self.out), self.tensors)
        self.assertEqual((self.out / "config.json").read_bytes(), (snapshot / "config.json").read_bytes())
        # Blobs of another model are out of bounds.
        other = self.folder / "models--some--other" / "blobs"
        other.mkdir(parents=True)
        (other / "secret").write_text("{}")
        (snapshot / "tokenizer.json").symlink_to(other / "secret")
        self.bad(1, "convert", snapshot, self.folder / "again", says=[snapshot / "tokenizer.json", other / "secret"])

    def link_to(self, path):
        link = self.folder / "cache"
        link.symlink_to(path)
        return link


class Carried(CairnTest):
    TAKEN = ("config.json", "tokenizer.json", "tokenizer.model", "merges.txt", "modeling_x.py", "LICENSE", "README.md",
             "chat_template.jinja")
    LEFT = (".gitattributes", "model.onnx", "optimizer.pt", "pytorch_model.bin", "pytorch_model.bin.index.json",
            "rng_state_0.pth", "training_args.bin")

    def setUp(self):
        super().setUp()
        self.source = self.folder / "source"
        two_shards(self.source)
        for name in (*self.TAKEN, *self.LEFT):
            (self.source / name).write_text(f"{{\"model_type\": \"{name}\"}}")
        with open(self.source / "optimizer.pt", "wb") as optimizer:
            optimizer.truncate(3 << 30)

    def names(self, folder):
        return {path.name for path in folder.iterdir() if not path.name.startswith("model")} - {"cairn.json", "cairn.blocks"}

    def test_files_of_a_model_are_taken_and_a_note_names_the_others(self):
        out = self.good("convert", self.source, self.folder / "out").out
        self.assertEqual(self.names(self.folder / "out"), set(self.TAKEN) - {"modeling_x.py"})
        self.assertTrue((self.folder / "out" / "modeling_x.py").exists())
        notes = [line for line in out.splitlines() if line.startswith("note: left behind")]
        self.assertEqual(len(notes), 1, out)
        self.assertIn("model.onnx", notes[0])
        self.assertNotIn(".gitattributes", out)  # says nothing about the model
        for ranks in (None, 2):
            file = self.folder / f"state{ranks}.h5"
            notes = self.good("convert", self.source, file, "--json", ranks=ranks).json()["notes"]
            self.assertEqual(len([note for note in notes if "left behind" in note]), 1, notes)
        self.good("convert", self.folder / "state2.h5", self.folder / "back", "--strict")
        told = cairn("convert", self.source, self.folder / "strict", "--strict", ranks=2)
        self.assertEqual((told.code, told.errors), (1, []))
        self.assertIn("--strict: 1 note is above, on what was lost, assumed or not done", told.out)
        self.assertEqual(self.good("convert", self.folder / "strict", self.folder / "once", "--json").json()["omissions"], 0)
        for name in self.TAKEN:
            content = (self.source / name).read_bytes()
            self.assertEqual((self.folder / "out" / name).read_bytes(), content)
            self.assertEqual((self.folder / "back" / name).read_bytes(), content)
        self.assertEqual((self.folder / "state2.h5").read_bytes(), (self.folder / "stateNone.h5").read_bytes())

    def test_what_a_save_was_given_is_taken_whatever_its_name(self):
        self.good("convert", self.source, self.folder / "first")
        self.good("convert", self.folder / "first", self.folder / "second")
        self.assertEqual(self.names(self.folder / "second"), self.names(self.folder / "first"))
        (self.folder / "first" / "later.bin").write_text("put there by hand")
        text = self.good("convert", self.folder / "first", self.folder / "third").out
        self.assertIn("later.bin", text)
        self.assertFalse((self.folder / "third" / "later.bin").exists())

    def test_damage_is_not_passed_on(self):
        self.good("convert", self.source, self.folder / "first")
        (self.folder / "first" / "merges.txt").write_text("{\"model_type\": \"MERGES.txt\"}")
        for name in ("second", "second.h5"):
            self.bad(1, "convert", self.folder / "first", self.folder / name, says=["merges.txt", "checksum"])
            self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["first", "source"])

    def test_a_name_that_is_nothing_but_the_ending_is_a_staging_file(self):
        for name in (".h5", "state.HDF5"):
            self.good("convert", self.source, self.folder / name)
            self.assertTrue((self.folder / name).is_file())

    def test_a_config_above_the_limit_of_reading_is_taken_along(self):
        with open(self.source / "config.json", "wb") as config:
            config.truncate(17 << 20)
        self.good("convert", self.source, self.folder / "out")
        self.assertEqual((self.folder / "out" / "config.json").stat().st_size, 17 << 20)

    def test_a_checkpoint_is_not_converted_into_itself(self):
        self.good("convert", self.source, self.folder / "first")
        before = self.names(self.folder / "first")
        self.bad(2, "convert", self.folder / "first", self.folder / "first" / "second", says=["lies in", "outside of it"])
        self.bad(2, "convert", self.folder / "first", self.folder / "first", says=["is", "which is to be converted"])
        self.bad(2, "convert", self.folder / "first", self.folder, says=["holds", "which is to be converted"])
        self.assertEqual(self.names(self.folder / "first"), before)

    def test_files_are_copied_in_pieces(self):
        size = 300 << 20
        with open(self.source / "vocab.txt", "wb") as vocabulary:
            vocabulary.truncate(size - 3)
            vocabulary.seek(0, os.SEEK_END)
            vocabulary.write(b"end")
        for source, name in ((self.source, "out"), (self.source, "state.h5"), (self.folder / "state.h5", "back")):
            self.assertLess(peak_bytes("convert", source, self.folder / name), 200 << 20, name)
        for name in ("out", "back"):
            with open(self.folder / name / "vocab.txt", "rb") as copy:
                self.assertEqual(os.fstat(copy.fileno()).st_size, size)
                copy.seek(-4, os.SEEK_END)
                self.assertEqual(copy.read(), b"\0end")
            self.assertIn("good:", self.good("verify", self.folder / name).out)


class Metadata(CairnTest):
    """Keys of data files and manifests that Cairn itself does not write."""

    def setUp(self):
        super().setUp()
        self.source = self.folder / "source"
        write_safetensors(self.source / "model-00001-of-00002.safetensors", {"a": counting("F32", [300])},
                          {"format": "mlx", "title": "first", "only first": "1"})
        write_safetensors(self.source / "model-00002-of-00002.safetensors", {"b": counting("F32", [300])},
                          {"format": "mlx", "title": "second", "only second": "2"})
        self.kept = {"format": "mlx", "title": "first", "only first": "1", "only second": "2"}

    def metadata(self, folder):
        found = [read_safetensors(path)[1] for path in sorted(folder.glob("*.safetensors"))]
        self.assertTrue(found)
        return found

    def test_of_data_files_is_kept_and_the_first_file_wins(self):
        text = self.good("convert", self.source, self.folder / "out", "--max-file-size", "1200B").out
        self.assertEqual(self.metadata(self.folder / "out"), [self.kept, self.kept])
        notes = [line for line in text.splitlines() if line.startswith("note: ")]
        self.assertEqual(len([note for note in notes if "disagree about metadata title;" in note]), 1, text)
        self.good("convert", self.source, self.folder / "by-3", "--max-file-size", "1200B", ranks=3)
        self.assertEqual(snapshot(self.folder / "by-3"), snapshot(self.folder / "out"))
        self.good("convert", self.source, self.folder / "state.h5")
        self.good("convert", self.folder / "state.h5", self.folder / "back", "--max-file-size", "1200B")
        self.assertEqual(self.metadata(self.folder / "back"), [self.kept, self.kept])

    def test_what_describes_a_file_is_not_true_of_another(self):
        self.good("convert", self.source, self.folder / "shards", "--to", "shards", "--layout", "fsdp=2")
        for metadata in self.metadata(self.folder / "shards"):
            self.assertEqual({key: metadata.get(key) for key in ("title", "only first", "format")},
                             {"title": "first", "only first": "1", "format": "pt"})
        self.good("convert", self.folder / "shards", self.folder / "back")
        self.assertEqual(self.metadata(self.folder / "back"), [{**self.kept, "format": "pt"}])
        write_safetensors(self.folder / "paddle" / "model.safetensors", {"a": counting("F32", [3])}, {"format": "np"})
        self.good("convert", self.folder / "paddle", self.folder / "hf", "--keep-names")
        self.assertEqual(self.metadata(self.folder / "hf"), [{"format": "pt"}])

    def test_unknown_keys_of_the_manifest_are_kept(self):
        self.good("convert", self.source, self.folder / "first")
        path = self.folder / "first" / "cairn.json"
        content = json.loads(path.read_text())
        unknown = {"from a later version": {"list": [1, -2, 0.5, None, True, "text"]}}
        content.update(unknown, engine="posix", hints={"a": "b"})
        write_manifest(path, content)
        self.good("convert", self.folder / "first", self.folder / "second")
        self.good("convert", self.folder / "first", self.folder / "shards", "--to", "shards", "--layout", "fsdp=2")
        self.good("convert", self.folder / "first", self.folder / "state.h5")
        self.good("convert", self.folder / "state.h5", self.folder / "third")
        for name in ("second", "shards", "third"):
            found = json.loads((self.folder / name / "cairn.json").read_text())
            self.assertEqual({key: found.get(key) for key in unknown}, unknown, name)
            self.assertNotIn("engine", found)  # the engine of the source's save
            self.assertNotIn("file_metadata", found)
            self.assertIn("good:", self.good("verify", self.folder / name).out)


class Replaced(CairnTest):
    """A checkpoint that is replaced by another one after it was opened and before its data is read."""

    def replaced(self, command, *others):
        for name, start in (("old", 0), ("new", 7)):
            write_safetensors(self.folder / "plain" / "model.safetensors", {"a": counting("F32", [300], start)})
            self.good("convert", self.folder / "plain", self.folder / name)
        # The header is read once before the data.
        started = Paused(self, "open:path=/old/model.safetensors:after=1", command, self.folder / "old", *others)
        (self.folder / "old").rename(self.folder / "older")
        (self.folder / "new").rename(self.folder / "old")
        started.go()
        return started.result()

    def test_is_verified_again(self):
        result = self.replaced("verify")
        self.assertEqual(result.code, 0, result.out + result.err)
        self.assertIn("good: 1 tensor", result.out)

    def test_is_compared_again(self):
        result = self.replaced("diff", self.folder / "plain", "--engine", "posix")
        self.assertEqual(result.code, 0, result.out + result.err)
        self.assertIn("equal: 1 tensor", result.out)


if __name__ == "__main__":
    main()
