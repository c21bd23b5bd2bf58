"""Help, version, exit codes, and one line for every wrong argument."""

import os
import pathlib
import re
import signal
import subprocess

import small_files
from program import CAIRN, LIMIT_S, CairnTest, cairn, exit_codes, main, run_command

COMMANDS = ("inspect", "verify", "convert", "diff", "ls", "prune", "pin", "unpin", "repair", "demo", "bench",
            "plan", "advise", "report", "doctor")


class Help(CairnTest):
    def test_help_names_every_subcommand(self):
        text = self.good("--help").out
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {command} ")
        self.assertIn("Exit codes", text)

    def test_help_of_every_subcommand_has_an_example(self):
        for words in [[command] for command in COMMANDS] + [["demo", "save"], ["demo", "load"]]:
            text = self.good(*words, "--help").out
            self.assertIn("Example", text)
            self.assertRegex(text, "cairn " + " ".join(words))

    def test_version_names_the_tool_its_revision_and_the_mpi_library(self):
        text = self.good("--version").out
        self.assertRegex(text, r"(?m)^cairn \d+\.\d+\.\d+$")
        self.assertRegex(text, r"(?m)^revision: ([0-9a-f]{12}(-dirty)?|unknown)$")
        self.assertRegex(text, r"(?m)^MPI library: \S+")
        self.assertIn("build: ", text)

    def test_rank_0_alone_speaks(self):
        self.assertEqual(self.good("--version", ranks=3).out.count("MPI library"), 1)


class WrongUsage(CairnTest):
    def setUp(self):
        super().setUp()
        self.source = self.folder / "source"
        small_files.two_shards(self.source)
        self.destination = self.folder / "destination"

    def test_no_or_unknown_subcommand(self):
        self.bad(2, says=["--help"])
        self.bad(2, "frobnicate", says=["frobnicate"])
        self.bad(2, "demo", says=["cairn demo --help"])
        self.bad(2, "demo", "dance", says=["dance"])
        self.bad(2, "verify", self.source, "--al", ranks=2, says=["unknown option '--al': did you mean '--all'?"])

    def test_missing_and_extra_arguments(self):
        self.bad(2, "inspect", says=["path", "cairn inspect --help"])
        self.bad(2, "diff", self.source, says=["b "])
        self.bad(2, "ls", self.source, "--frobnicate", says=["--frobnicate"])
        self.bad(2, "demo", "save", says=["--dir"])

    def test_values_that_are_not_allowed(self):
        cases = [
            (["--to", "shards", "--layout", "tp=two"], "two"),
            (["--to", "shards", "--layout", "sideways=2"], "sideways"),
            (["--to", "shards", "--layout", "@" + str(self.source / "config.json")], "model_type"),
            (["--max-file-size", "5XB"], "5XB"),
            (["--max-file-size", "0"], "--max-file-size"),
            (["--memory", "-1"], "--memory"),
            (["--align", "1000"], "power of two"),
            (["--block-size", "many"], "--block-size"),
            (["--to", "pickle"], "pickle"),
            (["--to", "shards"], "--layout"),
            (["--engine", "tape"], "tape"),
            (["--engine", "hdf5"], "{auto,direct,mpiio,posix}"),
            (["--hint", "novalue"], "novalue"),
            (["--hint", "a=1", "--hint", "a=2"], "twice"),
        ]
        for arguments, word in cases:
            with self.subTest(arguments=arguments):
                self.bad(2, "convert", self.source, self.destination, *arguments, says=[word])
                self.assertFalse(self.destination.exists())
        self.bad(2, "demo", "save", "--dir", self.destination, "--layers", "0", says=["--layers"])
        self.bad(2, "demo", "save", "--dir", self.destination, "--model", "gpt-9", says=["gpt-9"])
        self.assertFalse(self.destination.exists())

    def test_numbers_that_do_not_fit(self):
        save = ["demo", "save", "--dir", self.destination]
        cases = [
            ([*save, "--step"], "18446744073709551616", "out of range; give a whole number from 0 to 18446744073709551615"),
            ([*save, "--step"], "-1", "not a whole number"),
            ([*save, "--step"], "0x10", "not a whole number"),
            ([*save, "--layers"], "18446744073709551617", "is more than 100000"),
            (["convert", self.source, self.destination, "--quant", "q8", "--max-update-error"], "nan", "not a finite number"),
            (["diff", self.source, self.source, "--rtol"], "1e400", "not a finite number"),
            (["bench", "--dir", self.destination, "--in-flight"], "4294967296", "is more than 1024"),
            (["bench", "--dir", self.destination, "--load-ranks"], "1,2147483648", "'2147483648' is out of range"),
        ]
        for words, number, says in cases:
            with self.subTest(option=words[-1], number=number):
                self.bad(2, *words, number, says=[words[-1], says])
        self.assertFalse(self.destination.exists())
        self.good("diff", self.source, self.source, "--rtol", "1e-3", "--atol", "0.5")

    def test_lists(self):
        """Empty and repeated entries, in each option that takes a list."""
        bench, plan = ["bench", "--dir", self.folder], ["plan", "--model", "smollm2-135m", "--layout", "fsdp=2"]
        for words, option, good, other in ((bench, "--sweep", "1MiB", "2MiB"), (bench, "--load-ranks", "1", "2"),
                                           (bench, "--sections", "model", "optimizer"),
                                           (plan, "--sections", "model", "optimizer"),
                                           (["verify", self.source], "--require", "model", "step")):
            for value in (",", f"{good},", f",{good}", f"{good},,{other}"):
                with self.subTest(option=option, value=value):
                    self.bad(2, *words, option, value, says=[option, f"'{value}'", "empty entry"])
            self.bad(2, *words, f"{option}={good},{other},{good}", says=[option, f"'{good}' twice"])
        self.bad(2, *bench, "--sweep", ",", "--size", "1MiB", says=["--sweep", "empty entry"])
        self.bad(2, "verify", self.source, "--require", "model", "--require", "model", says=["--require", "twice"])
        self.good("inspect", "--sections", self.source)

    def test_a_config_is_named_by_its_path(self):
        config = self.folder / "tiny.json"
        for text, says in (("root:x:0:0", "not valid JSON"), ('{"model_type": "llama"}', "is missing")):
            config.write_text(text)
            result = self.bad(1, "plan", "--layout", "fsdp=2", "--model", f"@{config}", says=[f"'{config}': ", says])
            self.assertNotIn("config.json", result.err)
        (self.source / "config.json").write_text('{"model_type": "llama"}')
        self.bad(1, "convert", self.source, self.destination, "--to", "shards", "--layout", "fsdp=2",
                 says=[f"'{self.source}': config.json: the key", "is missing"])

    def test_options_that_are_given_twice(self):
        for words in (["bench", "--dir", self.folder, "--size", "1MiB", "--size", "2MiB"],
                      ["convert", self.source, self.destination, "--dtype", "F16", "--dtype", "BF16"]):
            self.bad(2, *words, says=[f"{words[-2]} is given twice: give it once"])
        self.bad(2, "verify", self.source, "--require", says=["--require"])

    def test_missing_paths(self):
        missing = self.folder / "missing"
        for words in (["inspect"], ["verify"], ["ls"], ["diff", self.source], ["demo", "load", "--dir"]):
            with self.subTest(command=words):
                self.bad(1, *words, missing, says=[missing])
        self.bad(1, "convert", missing, self.destination, says=[missing])
        self.bad(1, "convert", self.source, self.destination, "--to", "shards", "--layout", f"@{missing}", says=[missing])
        self.assertFalse(missing.exists())

    def test_empty_values(self):
        for words, says in ((["inspect"], "path"), (["verify", "--all"], "path"), (["doctor"], "path"),
                            (["convert", self.source], "destination"), (["demo", "save", "--dir"], "--dir"),
                            (["inspect", self.source, "--part"], "--part"),
                            (["demo", "save", "--dir", self.destination, "--group"], "--group")):
            with self.subTest(command=words):
                self.bad(2, *words, "", says=[says, "is empty"])
        self.bad(2, "plan", "--layout", "fsdp=2", "--model", "@", says=["'@'", "is empty"])
        self.assertEqual(os.listdir(self.folder), ["source"])

    def test_every_rank_ends_alike(self):
        self.assertEqual(exit_codes("inspect", self.source, ranks=3), [0, 0, 0])
        self.assertEqual(exit_codes("inspect", self.folder / "missing", ranks=3), [1, 1, 1])
        self.assertEqual(exit_codes("diff", self.source, ranks=3), [2, 2, 2])
        self.assertEqual(exit_codes("--help", ranks=3), [0, 0, 0])

    def test_errors_are_printed_once_on_several_ranks(self):
        self.bad(1, "verify", self.folder / "missing", ranks=3, says=["missing"])
        self.bad(2, "verify", ranks=3)


class ExitCodes(CairnTest):
    def test_the_table_has_those_of_the_code(self):
        source = pathlib.Path(__file__).resolve().parents[2]
        page = (source / "src/cli/README.md").read_text()
        table = dict(re.findall(r"(?m)^\| (\d+) \| (.*) \|$", page))
        header = (source / "src/base/exit_codes.hpp").read_text()
        constants = dict(re.findall(r"inline constexpr int (kExit\w+) = (\d+);", header))
        base = int(constants.pop("kExitSignal"))
        words = {"kExitGood": "good", "kExitFailed": "failed", "kExitUsage": "wrong usage", "kExitSilent": "no progress"}
        self.assertEqual(set(words), set(constants))
        for name, code in constants.items():
            self.assertIn(words[name], table.pop(code), name)
        endings = re.findall(r'\{+SIG\w+, "(SIG\w+)"\}', (source / "src/os/interrupt.cpp").read_text())
        self.assertGreater(len(endings), 5)
        for name in [*endings, "SIGALRM"]:
            self.assertIn(name, table.pop(str(base + signal.Signals[name])))
        self.assertEqual(table, {})
        text = self.good("--help").out
        for words in ("0 good", "2 wrong usage", "5 no progress", f"{base + signal.SIGINT} ended by Ctrl-C",
                      f"{base + signal.SIGTERM} by SIGTERM"):
            self.assertIn(words, " ".join(text.split()))


class Surroundings(CairnTest):
    def test_the_launcher_of_another_library_is_named_once(self):
        cases = [
            {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"},
            {"PMI_SIZE": "4"},
            {"SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"},
        ]
        small_files.two_shards(self.folder / "source")
        for variables in cases:
            result = self.good("inspect", self.folder / "source", **variables)
            self.assertEqual(len(result.warnings), 1, result.err)
            self.assertIn(next(iter(variables)), result.warnings[0])

    def test_processes_that_only_believe_to_be_alone_do_not_save(self):
        root = self.folder / "root"
        self.bad(2, "demo", "save", "--dir", root, "--layers", "1", says=["not saved", "SLURM_STEP_NUM_TASKS=4"],
                 SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="1")
        self.assertEqual(list(root.glob("checkpoint-*")), [])
        self.good("demo", "save", "--dir", root, "--layers", "1", SLURM_NTASKS="4", SLURM_PROCID="0")

    def test_a_job_script_is_no_wrong_launcher(self):
        small_files.two_shards(self.folder / "source")
        self.assertEqual(self.good("inspect", self.folder / "source", SLURM_NTASKS="4").warnings, [])
        self.assertEqual(self.good("inspect", self.folder / "source", ranks=2).warnings, [])

    def test_output_that_does_not_arrive_is_an_error(self):
        full = pathlib.Path("/dev/full")
        if not full.exists():
            self.skipTest("no /dev/full here")
        with full.open("w") as stream:
            result = run_command([str(CAIRN), "--help"], {}, stdout=stream)
        self.assertEqual(result.code, 1)
        self.assertEqual(len(result.errors), 1, result.err)
        self.assertIn("standard output", result.errors[0])

    def test_tables_are_cut_on_a_terminal_only(self):
        many = {f"layers.{i}.weight": small_files.counting("F32", [2], i) for i in range(50)}
        path = self.folder / "model.safetensors"
        small_files.write_safetensors(path, many)
        for arguments, rows in ([], 20), (["--all"], 50):
            controller, terminal = os.openpty()
            with subprocess.Popen([str(CAIRN), "inspect", str(path), "--tensors", *arguments], stdout=terminal,
                                  stderr=subprocess.DEVNULL) as process:
                os.close(terminal)
                text = b""
                try:
                    while chunk := os.read(controller, 4096):
                        text += chunk
                except OSError:  # the other end is closed
                    pass
                self.assertEqual(process.wait(timeout=LIMIT_S), 0)
            os.close(controller)
            self.assertEqual(text.count(b".weight"), rows)
            self.assertEqual(b"... 30 more (--all)" in text, rows == 20)
        self.assertEqual(cairn("inspect", path, "--tensors").out.count(".weight"), 50)


if __name__ == "__main__":
    main()
