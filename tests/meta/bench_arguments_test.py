"""The Python benchmarks answer --help and refuse wrong arguments by themselves,
without packages and without a build."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WRONG = {"peers": [["--nonsense"], ["--systems", "nobody"], ["--size", "1KiB"], ["--repeats", "0"]],
         "metadata": [["--nonsense"], ["--tensors", "3"], ["--files", "1"], ["--ranks", "0"]],
         "paddle": [["--nonsense"], ["--size", "1kB"], ["--size", "1MiB"], ["--ranks", "0"], ["--repeats", "0"]],
         "training": [["--nonsense"], ["--lineages", "q8,q4,q2"]]}


class Arguments(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        python = pathlib.Path(self.folder.name) / "python3"
        python.write_text(f'#!/bin/sh\n[ "$1" != -m ] || exit 3\nexec {sys.executable} -B "$@"\n')
        python.chmod(0o755)

    def tearDown(self):
        self.folder.cleanup()

    def run_benchmark(self, name, *arguments):
        """With a python3 that installs nothing, and without programs: continuing after the arguments
        ends in an error."""
        environment = {**os.environ, "PATH": f"{self.folder.name}:{os.environ['PATH']}", "CAIRN_VENV": "/nonexistent",
                       "CAIRN_BIN_DIR": "/nonexistent"}
        return subprocess.run([ROOT / "bench" / name / "run", *arguments], env=environment, capture_output=True,
                              text=True, check=False, timeout=300)

    def test_help_is_answered(self):
        for name in WRONG:
            run = self.run_benchmark(name, "--help")
            self.assertEqual((run.returncode, run.stderr), (0, ""), name)
            self.assertIn(f"usage: bench/{name}/run", run.stdout)
            self.assertIn("--output", run.stdout)
            self.assertNotIn("--mpirun", run.stdout)

    def test_wrong_arguments_are_refused(self):
        for name, wrong in WRONG.items():
            for arguments in wrong:
                run = self.run_benchmark(name, *arguments)
                self.assertEqual(run.returncode, 2, f"{name} {arguments}: {run.stderr}")
                self.assertIn(f"bench/{name}/run: error: ", run.stderr)
                self.assertNotIn("Installing", run.stderr)

    def test_good_arguments_go_on(self):
        for name in WRONG:
            run = self.run_benchmark(name)
            self.assertNotIn(run.returncode, (0, 2), name)


if __name__ == "__main__":
    unittest.main()
