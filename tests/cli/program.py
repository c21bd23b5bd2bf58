"""Starts `cairn` for a test, alone or on several ranks, and returns its output and exit status.

CAIRN_BIN_DIR has the program, CAIRN_MPIEXEC the launcher with its option for the number of ranks ("mpirun -n").
"""

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest

CAIRN = pathlib.Path(os.environ["CAIRN_BIN_DIR"]) / "cairn"
LIMIT_S = 300
LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
             "PMIX_RANK", "CAIRN_FAULT")


class Result:
    """Exit code, standard output, and the program's own lines of standard error."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        self.errors = [line for line in err.splitlines() if line.startswith("cairn: error: ")]
        self.warnings = [line for line in err.splitlines() if line.startswith(("cairn: warning: ", "cairn[0]: warning: "))]

    def json(self):
        document = json.loads(self.out)
        assert document["cairn_json"] == 1, document
        return document


def environment(extra):
    names = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    return {**names, **extra}


def run_command(command, extra, stdout=subprocess.PIPE, who=None):
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False,
                          env=environment(extra), stdin=subprocess.DEVNULL, **(who or {}))
    return Result(done.returncode, done.stdout, done.stderr)


def launcher(ranks):
    return [*shlex.split(os.environ["CAIRN_MPIEXEC"]), str(ranks)]


def cairn(*arguments, ranks=None, who=None, **extra):
    """Runs the program; `extra` are environment variables. Without `ranks` it is started without a launcher. `who`:
    user and groups of the process, as subprocess takes them, if different."""
    command = [str(CAIRN), *map(str, arguments)]
    return run_command(command if ranks is None else launcher(ranks) + command, extra, who=who)


def exit_codes(*arguments, ranks):
    """The exit code of every rank."""
    script = '"$@" >&2; echo "code=$?"'
    result = run_command([*launcher(ranks), "sh", "-c", script, "sh", str(CAIRN), *map(str, arguments)], {})
    return [int(line.removeprefix("code=")) for line in result.out.splitlines() if line.startswith("code=")]


def snapshot(folder):
    """Every file below the folder, with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class CairnTest(unittest.TestCase):
    """A test with a folder of its own, which is removed afterwards."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def good(self, *arguments, **options):
        result = cairn(*arguments, **options)
        self.assertEqual(result.code, 0, result.err + (result.out or ""))
        self.assertEqual(result.errors, [])
        return result

    def bad(self, code, *arguments, says=(), **options):
        """Expects exactly one line on standard error, with every word of `says`; returns the exit code."""
        result = cairn(*arguments, **options)
        self.assertEqual(result.code, code, result.err + (result.out or ""))
        self.assertEqual(len(result.errors), 1, result.err)
        if options.get("ranks") is None:
            self.assertEqual(result.err.count("\n"), 1, result.err)  # mpirun adds lines of its own
        for word in says:
            self.assertIn(str(word), result.errors[0])
        return result


class Paused:
    """The program, stopped at a fault point of rank 0 until go() or its end."""

    def __init__(self, test, fault, *arguments, ranks=None, before=None):
        self.gate = test.folder / "gate"
        command = [str(CAIRN), *map(str, arguments)]
        self.process = subprocess.Popen(command if ranks is None else launcher(ranks) + command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=before,
                                        env=environment({"CAIRN_FAULT": f"{fault}:rank=0:times=1:pause={self.gate}",
                                                         "CAIRN_PROGRESS_S": "0"}))  # it may take long to get there
        test.addCleanup(self._end)
        reached = self.gate.with_name("gate.reached")
        until = time.monotonic() + LIMIT_S
        while not reached.exists():
            test.assertIsNone(self.process.poll(), "it ended before it came to " + fault)
            test.assertLess(time.monotonic(), until, "it never came to " + fault)
            time.sleep(0.01)
        reached.unlink()

    def go(self):
        self.gate.touch()

    def result(self):
        out, err = self.process.communicate(timeout=LIMIT_S)
        self.gate.unlink(missing_ok=True)
        return Result(self.process.returncode, out, err)

    def _end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def main():
    """Runs the tests of the script; fails when there were none."""
    program = unittest.main(module="__main__", verbosity=2, exit=False)
    ran = program.result.testsRun - len(program.result.skipped)
    if ran == 0:
        raise SystemExit("no test ran")
    raise SystemExit(0 if program.result.wasSuccessful() else 1)
