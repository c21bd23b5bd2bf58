"""Output of commands while they work, and about arguments without effect: progress, notes, plurals, tables that fit."""

import fcntl
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import termios

from program import CAIRN, CairnTest, cairn, environment, main
from small_files import counting, read_safetensors, two_shards, values, write_safetensors


def on_terminal(*arguments, columns):
    """The program's output on a terminal of that many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    started = subprocess.Popen([str(CAIRN), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=theirs,
                               stderr=subprocess.DEVNULL, env=environment({}))
    os.close(theirs)
    text = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        text += more
    os.close(ours)
    assert started.wait() == 0, text
    return text.decode().replace("\r\n", "\n")


class Strict(CairnTest):
    """--strict counts the notes that say that something was lost, assumed or not done; others only inform."""

    def setUp(self):
        super().setUp()
        self.source = self.folder / "source"

    def check(self, notes, *arguments, omissions=None, to="out"):
        """`notes`: words of notes that must be there; all of them are counted, unless `omissions` says how many."""
        omissions = len(notes) if omissions is None else omissions
        result = cairn("convert", self.source, self.folder / to, *arguments, "--strict", "--json", ranks=2)
        self.assertEqual((result.code, result.errors), (1 if omissions else 0, []), result.err)
        document = result.json()
        for words in notes:
            self.assertTrue(any(words in note for note in document["notes"]), (words, document["notes"]))
        self.assertEqual(document["omissions"], omissions, document["notes"])
        out = self.folder / to
        shutil.rmtree(out) if out.is_dir() else out.unlink()

    def test_metadata_that_files_dispute(self):
        for i, title in ((1, "first"), (2, "second")):
            write_safetensors(self.source / f"model-0000{i}-of-00002.safetensors", {f"w{i}": counting("F32", [4])}, {"title": title})
        notes = ["2 files of 'model' have no index", "disagree about metadata title"]
        self.check(notes)
        if "HDF5: none" not in cairn("--version").out:
            self.check(notes, to="out.h5")

    def test_weights_and_options_without_effect(self):
        write_safetensors(self.source / "model.safetensors", {"w": values("F32", [2], [1, 1e30]), "b": values("F32", [2], [1, 2])})
        self.check(["1 value of section model is too large for F16 and became infinite"], "--dtype", "F16")
        self.check(["are F32 already"], "--dtype", "F32")
        self.check(["nothing is coded in q8"], "--quant", "q8")
        self.check(["--remove-master-weight leaves nothing out"], "--remove-master-weight")
        self.check(["1 of 2 tensors are converted, as --section and --name say"], "--name", "w", omissions=0)

    def test_what_a_guess_or_another_system_needs(self):
        write_safetensors(self.source / "model.safetensors", {"w": counting("F32", [4, 4])})
        self.check(["the model family is unknown", "unknown model: every tensor is cut on dimension 0"], "--to", "shards",
                   "--layout", "tp=2")
        shutil.rmtree(self.source)
        shutil.copytree(pathlib.Path(os.environ["CAIRN_TEST_DATA"]) / "paddle" / "n-dp2-O0", self.source)
        notes = ["are stored as U16 and taken as BF16"]
        self.check(notes, "--to", "paddlenlp")
        for name in ("scheduler.pdparams", "trainer_state.json"):
            (self.source / name).unlink()
        notes += ["nothing gives a scheduler.pdparams", "nothing says the step of the source"]
        self.check(notes, "--to", "paddlenlp")
        (path,) = self.source.glob("optimizer*.safetensors")
        tensors, metadata = read_safetensors(path)
        write_safetensors(path, {name: tensor for name, tensor in tensors.items() if "beta2_pow" not in name}, metadata)
        (self.source / "optimizer.safetensors.index.json").unlink()
        self.check([*notes, "no '<parameter>/beta2_pow_acc_0'"], "--to", "paddlenlp")


class Asked(CairnTest):
    def setUp(self):
        super().setUp()
        self.source = self.folder / "source"
        two_shards(self.source)

    def test_options_that_mean_nothing_together(self):
        out = self.folder / "out"
        self.bad(2, "convert", self.source, out, "--layout", "fsdp=2", says=["--layout", "--to shards"])
        self.bad(2, "convert", self.source, out, "--max-update-error", "0.1", says=["--max-update-error", "codec"])
        self.bad(2, "convert", self.source, out, "--max-update-error", "0.1", "--quant", "off", says=["--max-update-error"])
        self.assertFalse(out.exists())

    def test_an_error_of_all_ranks_ends_without_boxes_of_mpi(self):
        two_shards(self.folder / "same")
        taken = self.folder / "taken"
        taken.mkdir()
        for code, says, fault, command in (
                (2, "taken", {}, ["convert", self.source, taken]),
                (1, "nowhere", {}, ["convert", self.folder / "nowhere", self.folder / "out"]),
                (1, "out of memory", {"CAIRN_FAULT": "memory.diff:rank=1"}, ["diff", self.source, self.folder / "same"])):
            with self.subTest(says=says):
                result = self.bad(code, *command, ranks=3, says=[says], **fault)
                for box in ("MPI_ABORT", "MPI_Abort", "PMIX"):
                    self.assertNotIn(box, result.err)

    def test_a_codec_that_finds_nothing(self):
        for ranks in (None, 2):
            out = self.folder / f"out{ranks}"
            text = self.good("convert", self.source, out, "--quant", "q8", ranks=ranks).out
            self.assertEqual(len(re.findall("(?m)^note: nothing is coded in q8", text)), 1, text)
        moments = {"w.exp_avg": counting("F32", [64, 64]), "w.exp_avg_sq": counting("F32", [64, 64])}
        write_safetensors(self.folder / "state" / "optimizer.safetensors", moments)
        write_safetensors(self.folder / "state" / "model.safetensors", {"w": counting("F32", [64, 64])})
        self.assertNotIn("nothing is coded", self.good("convert", self.folder / "state", self.folder / "q8", "--quant", "q8").out)

    def test_processes_that_each_believe_to_be_alone_are_refused(self):
        for name in ("out", "out.h5"):
            result = cairn("convert", self.source, self.folder / name, OMPI_COMM_WORLD_SIZE="4")
            self.assertEqual((result.code, len(result.errors)), (2, 1), result.err)
            self.assertIn("OMPI_COMM_WORLD_SIZE=4", result.errors[0])
            self.assertFalse((self.folder / name).exists())

    def test_a_destination_with_a_slash(self):
        self.good("convert", self.source, f"{self.folder}/new/")
        self.assertIn("good:", self.good("verify", self.folder / "new").out)

    def test_results_of_a_benchmark_are_tried_before_it_measures(self):
        (self.folder / "bench").mkdir()
        for option in ("--record", "--csv", "--html"):
            for wrong in (self.folder / "nowhere" / "file", self.folder):
                self.bad(2, "bench", "--dir", self.folder / "bench", "--size", "16MiB", option, wrong, says=[option, wrong])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["bench", "source"])

    def test_ls_tells_what_conversions_left(self):
        left = self.folder / "out.0123456789abcdef.partial"
        two_shards(left)
        (self.folder / "mine.partial").mkdir()
        text = self.good("ls", self.folder).out
        self.assertRegex(text, r"(?m)^ *- +partial .* out\.0123456789abcdef\.partial +not committed")
        self.assertNotIn("mine.partial", text)
        self.assertIn("0 checkpoints", text)
        (row,) = self.good("ls", self.folder, "--json").json()["unfinished"]
        self.assertEqual((row["directory"], row["destination"], row["files"]), (str(left), str(self.folder / "out"), 4))
        self.assertEqual(row["size_bytes"], sum(path.stat().st_size for path in left.iterdir()))


class Words(CairnTest):
    def test_one_is_not_many(self):
        write_safetensors(self.folder / "one" / "model.safetensors", {"a": counting("F32", [1])})
        for command in (["convert", self.folder / "one", self.folder / "out"], ["verify", self.folder / "out"],
                        ["inspect", self.folder / "out"], ["diff", self.folder / "one", self.folder / "out"]):
            text = self.good(*command).out
            self.assertNotRegex(text, r"(?<![0-9.,])1 (files|tensors|ranks|blocks|elements|bytes)", command)
            self.assertRegex(text, r"(?<![0-9.,])1 tensor[ ,]", command)
        text = self.good("demo", "save", "--dir", self.folder / "root", "--layers", "1").out
        self.assertRegex(text, r"saved [0-9]+ tensors, [0-9,]+ bytes .* from 1 rank in layout")
        self.assertIn("1 checkpoint under", self.good("ls", self.folder / "root").out)

    def test_tables_fit_the_terminal(self):
        long = "model.layers." + "very_" * 20 + "long.weight"
        write_safetensors(self.folder / "a" / "model.safetensors", {long: counting("F32", [3, 4]), "b": counting("F32", [1])})
        for columns in (80, 50):
            text = on_terminal("inspect", self.folder / "a", columns=columns)
            table = text[text.index("section  tensor"):] if "section  tensor" in text else text
            self.assertLessEqual(max(map(len, table.splitlines())), columns, text)
            self.assertIn("...", table)
            self.assertIn("long.weight", table)  # names are shortened in the middle
        self.assertIn(long, self.good("inspect", self.folder / "a").out)


class Progress(CairnTest):
    def lines(self, *arguments, ranks=None):
        result = self.good(*arguments, ranks=ranks, CAIRN_PROGRESS_S="0.000001")
        return re.findall(r"(?m)^cairn: (\w+) .* of ([0-9.]+ \w+) \(", result.err)

    def test_of_a_conversion_is_of_the_whole(self):
        size = 24 << 20
        data = bytes(size)
        write_safetensors(self.folder / "a" / "model.safetensors", {"a": ("U8", [size], data)})
        for ranks in (None, 2):
            found = self.lines("convert", self.folder / "a", self.folder / f"out{ranks}", "--memory", "32MiB", ranks=ranks)
            self.assertTrue(found)
            self.assertEqual({phase for phase, _ in found} - {"writing", "fsync"}, set())
            self.assertEqual({total for _, total in found}, {"24.0 MiB"})
        found = self.lines("diff", self.folder / "a", self.folder / "out2", "--memory", "32MiB", ranks=2)
        self.assertEqual({phase for phase, _ in found}, {"comparing"})
        self.assertEqual(self.good("convert", self.folder / "a", self.folder / "quiet").err, "")
        result = self.good("convert", self.folder / "a", self.folder / "none", CAIRN_PROGRESS_S="0")
        self.assertEqual(result.err, "")

    def test_a_variable_that_says_nothing_is_said(self):
        write_safetensors(self.folder / "a" / "model.safetensors", {"a": ("U8", [4], bytes(4))})
        for name, value, takes in (("CAIRN_PROGRESS_S", "1O", "no number of seconds: a line every 10"),
                                   ("CAIRN_LOG", "verbose", "is taken for 'warning'")):
            for ranks in (None, 2):
                result = self.good("convert", self.folder / "a", self.folder / f"{name}{ranks}", ranks=ranks, **{name: value})
                self.assertEqual([name in line and value in line and takes in line for line in result.err.splitlines()
                                  if "warning" in line], [True], result.err)
        self.assertEqual(self.good("convert", self.folder / "a", self.folder / "off", CAIRN_LOG="off").err, "")


if __name__ == "__main__":
    main()
