"""A rank that stops in the middle of a save: the watchdog names phase and rank, the job ends with its exit code, and
the save leaves nothing visible."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

CAIRN = pathlib.Path(os.environ["CAIRN_BIN_DIR"]) / "cairn"
MPIEXEC = os.environ["CAIRN_MPIEXEC"].split()
WATCHDOG_EXIT_CODE = 5
LIMIT_S = 600


class StoppedRank(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="stopped-", dir="."))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)

    def test_the_watchdog_ends_the_job(self):
        faults = {"CAIRN_FAULT": "write:rank=1:path=.safetensors:stop=1", "CAIRN_WATCHDOG_S": "10"}
        done = subprocess.run([*MPIEXEC, "3", CAIRN, "demo", "save", "--dir", self.root, "--layers", "2"],
                              capture_output=True, text=True, check=False, timeout=LIMIT_S,
                              env={**os.environ, **faults})
        output = done.stdout + done.stderr
        self.assertEqual(done.returncode, WATCHDOG_EXIT_CODE, output)
        said = re.findall(r"no progress on any rank for 10 s in phase .(?:write|exchange).*: rank 1 of 3 \((.*)\) is missing, "
                          r"last heard of in phase '([a-z]+)'", output)
        self.assertTrue(said, output)
        self.assertEqual({host for host, _ in said}, {os.uname().nodename}, output)
        # Each round of the save makes progress in these phases, and the first write may begin in any of them.
        self.assertLessEqual({phase for _, phase in said}, {"plan", "exchange", "checksum", "write"}, output)
        self.assertNotIn("saved", done.stdout)
        self.assertEqual([path.name for path in self.root.glob("checkpoint-*") if path.suffix != ".partial"], [])


if __name__ == "__main__":
    unittest.main()
