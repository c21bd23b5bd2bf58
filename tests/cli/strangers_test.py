"""Directories of other programs that are less than they seem: what is missing is an error, or said and counted."""

import os
import pathlib
import shutil

from program import CairnTest, cairn, main
from small_files import INDEX, counting, read_safetensors, two_shards, write_safetensors


class BrokenLinks(CairnTest):
    """Links that lead nowhere, as a pruned cache leaves them, FIFOs and sockets: a part must not pass for the whole."""

    def setUp(self):
        super().setUp()
        self.source, self.destination = self.folder / "source", self.folder / "destination"
        two_shards(self.source)
        (self.source / INDEX).unlink()

    def refused(self, name, words):
        says = [f"{self.source / name}' {words}", "restore the file"]
        for arguments in (("inspect", self.source), ("convert", self.source, self.destination)):
            self.bad(1, *arguments, says=says)
        result = cairn("verify", self.source)
        self.assertEqual(result.code, 1)
        self.assertIn(says[0], result.out)
        self.assertFalse(self.destination.exists())

    def test_under_names_that_would_be_read(self):
        for name in ("config.json", "optimizer.safetensors", INDEX, "trainer_state.json", "cairn.json", "model_state.pdparams"):
            link = self.source / name
            link.unlink(missing_ok=True)
            link.symlink_to("../gone/blob")
            with self.subTest(name):
                self.refused(name, "is a link to '../gone/blob', which does not exist")
            if name == INDEX:
                self.bad(1, "convert", self.source, self.destination, ranks=2, says=[link, "../gone/blob"])
            link.unlink()

    def test_what_is_no_file(self):
        for name in ("config.json", INDEX, "extra.safetensors"):
            (self.source / name).unlink(missing_ok=True)
            os.mkfifo(self.source / name)
            with self.subTest(name):
                self.refused(name, "is neither a file nor a directory")
            (self.source / name).unlink()

    def test_in_a_folder(self):
        gone = self.source / "global_step1" / "mp_rank_00_model_states.pt"
        gone.parent.mkdir()
        for file in self.source.glob("*.safetensors"):
            file.unlink()
        (gone.parent / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").write_bytes(b"x")
        gone.symlink_to("gone")
        self.bad(1, "inspect", self.source)

    def test_under_other_names(self):
        (self.source / "tokenizer.json").symlink_to("../blobs/1")
        os.mkfifo(self.source / "pipe")
        (self.source / ".#lock").symlink_to("me@host.1")
        document = self.good("convert", self.source, self.destination, "--json").json()
        said = [note for note in document["notes"] if "is left out" in note]
        self.assertEqual(len(said), 2, said)
        self.assertIn("tokenizer.json' is a link to '../blobs/1', which does not exist", " ".join(said))
        self.assertIn("pipe' is neither a file nor a directory", " ".join(said))
        self.assertEqual(cairn("convert", self.source, self.folder / "strict", "--strict").code, 1)
        self.assertIn("tokenizer.json", self.good("inspect", self.source).out)


class TiedNames(CairnTest):
    """Names in the metadata, where only some tensors are taken."""

    def test_names_of_tied_weights_that_are_left_out(self):
        source, destination = self.folder / "source", self.folder / "destination"
        metadata = {"format": "pt", "b.weight": "a.weight", "d.weight": "c.weight"}
        weights = {name: counting("F32", [2, 2]) for name in ("a.weight", "c.weight", "pt")}
        write_safetensors(source / "model.safetensors", weights, metadata)
        document = self.good("convert", source, destination, "--name", "c.*", "--json").json()
        self.assertIn("the metadata's name 'b.weight' for tensor 'a.weight' is left out, as the tensor is", document["notes"])
        self.assertEqual(read_safetensors(destination / "model.safetensors")[1], {"format": "pt", "d.weight": "c.weight"})
        self.good("verify", destination)
        result = cairn("convert", source, self.folder / "x.h5", "--name", "c.*")
        if "HDF5" not in result.err:
            self.assertEqual(result.code, 0, result.err)
            self.good("convert", self.folder / "x.h5", self.folder / "back")
            self.good("verify", self.folder / "back")


class Remains(CairnTest):
    """Directories that say of themselves what they are not."""

    def test_a_table_of_blocks_that_is_lost(self):
        source, own = self.folder / "source", self.folder / "own"
        two_shards(source)
        self.good("convert", source, own)
        (own / "cairn.blocks").unlink()
        for ranks in (None, 2):
            self.bad(1, "inspect", own, ranks=ranks, says=[f"'{own}': cairn.blocks is missing, and cairn.json is there"])
        (own / "cairn.json").write_text("{}")
        result = self.bad(1, "inspect", own, says=["cairn.json"])
        self.assertNotIn("cairn.blocks", result.err)

    def test_names_in_upper_case(self):
        write_safetensors(self.folder / "model.SAFETENSORS", {"a": counting("F32", [4])})
        self.bad(1, "inspect", self.folder, says=["end in .safetensors, in lower case: rename model.SAFETENSORS"])

    def test_two_steps(self):
        for step in (7, 9):
            directory = self.folder / f"checkpoint-{step}"
            write_safetensors(directory / "model.safetensors", {"a": counting("F32", [4])})
            (directory / "trainer_state.json").write_text('{"global_step": 9}')
        self.assertIn(", step 9 (7 by its name, as ls says), ", self.good("inspect", self.folder / "checkpoint-7").out)
        self.assertIn(", step 9, ", self.good("inspect", self.folder / "checkpoint-9").out)


class LostShards(CairnTest):
    """Files of torch DCP do not say how many ranks there were."""

    def test_files_of_the_last_ranks(self):
        shards = self.folder / "shards"
        shutil.copytree(pathlib.Path(os.environ["CAIRN_TEST_DATA"]) / "dcp" / "hf_sharded" / "ckpt", shards)
        self.assertEqual(self.good("convert", shards, self.folder / "whole", "--strict", "--json").json()["notes"], [])
        (shards / "shard-00004-model-00001-of-00001.safetensors").unlink()
        for ranks in (None, 2):
            result = cairn("convert", shards, self.folder / f"part-{ranks}", "--strict", "--json", ranks=ranks)
            self.assertEqual(result.code, 1)
            self.assertIn("do not say how many ranks there were", " ".join(result.json()["notes"]))
        (shards / "config.json").write_text('{"vocab_size": 211, "hidden_size": 40}')
        self.bad(1, "convert", shards, self.folder / "refused", says=["ends after 159 rows", "vocab_size 211"])


if __name__ == "__main__":
    main()
