"""A rank stops in any phase of any call, with every engine (silence_program.cpp):
the jobs run in parallel, since they wait.

silence_test.py PROGRAM SCENARIOS: the number drawn for each engine (CAIRN_TEST_SEED repeats a draw); 0: all.
"""

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, DRAWN = sys.argv[1], int(sys.argv[2])
MPIEXEC = os.environ["CAIRN_MPIEXEC"].split()
RANKS = 3
LIMIT_S = 10000  # the program itself reports a scenario that hangs
# Shared files need a disk, and so does O_DIRECT. "auto" in memory: bytes bypass the windows. When only one thread may
# call MPI, calls of MPI-IO cannot be abandoned.
MEMORY = "/dev/shm"
JOBS = {"direct": ("direct", ".", {}), "mpiio": ("mpiio", ".", {}), "posix": ("posix", MEMORY, {}),
        "bypass": ("auto", MEMORY, {}), "mpiio, one thread": ("mpiio", ".", {"CAIRN_TEST_THREADS": "funneled"})}


class Silence(unittest.TestCase):
    def test_every_engine(self):
        seed = os.environ.get("CAIRN_TEST_SEED") or str(random.randrange(1 << 31))
        jobs = {}
        for name, (engine, place, extra) in JOBS.items():
            folder = pathlib.Path(tempfile.mkdtemp(prefix="silence-", dir=place)).resolve()
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
            jobs[name] = subprocess.Popen([*MPIEXEC, str(RANKS), PROGRAM, engine, folder, str(DRAWN), seed],
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                          env={**os.environ, **extra}, stdin=subprocess.DEVNULL)
            self.addCleanup(jobs[name].kill)
        for name, job in jobs.items():
            with self.subTest(engine=name, seed=seed):
                output = job.communicate(timeout=LIMIT_S)[0]
                found = re.search(r"silence \w+: (\d+) of (\d+) good", output)
                self.assertTrue(found, output)
                self.assertEqual(found[1], found[2], output)
                self.assertGreater(int(found[2]), DRAWN)
                self.assertNotIn("bad: ", output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
