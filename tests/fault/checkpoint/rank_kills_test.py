"""A rank of a save is killed at a random moment, again and again, in synchronous and in asynchronous saves:
the remaining ranks learn which rank is missing within the limit, nothing incomplete is visible,
the newest checkpoint is intact, and the next job works.

    rank_kills_test.py RANK_SAVER --kills 6 --limit-s 10
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
import unittest

from rank_job import END_S, START_S, Job
from root import newest, remove_before

RANKS = 3


class RankKills(unittest.TestCase):
    kills = 6
    limit_s = 10  # on a busy machine a rank may not run for some seconds
    program = None

    def setUp(self):
        in_memory = pathlib.Path("/dev/shm")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rank-kills-", dir=in_memory if in_memory.is_dir() else None))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.root = self.folder / "root"
        self.counts = {"cut_off": 0, "launcher": 0, "told": 0}

    def newest(self):
        """0: none yet."""
        return newest(self, self.root) if any(self.root.glob("checkpoint-*[0-9]")) else 0

    def kill_once(self, how, survive, moments):
        before = self.newest()
        job = Job(self.program, RANKS, self.root, how, self.folder, self.limit_s, survive)
        if not job.wait_for(f"saved {before + 2}", START_S):
            job.kill()
            self.fail("no save\n" + job.output())
        time.sleep(moments.uniform(0, 0.1))
        victim = moments.randrange(RANKS)
        os.kill(job.pids()[victim], signal.SIGKILL)
        left = job.left_after(END_S)
        told = job.told(RANKS - 1) if survive else []  # the launcher may be killed as well
        self.counts["launcher"] += job.kill()
        output = job.output()
        self.assertFalse(left, f"ranks that were still there {END_S} s after the kill: {left}\n{output}")
        partial = any(self.root.glob("*.partial"))
        found = self.newest()
        self.counts["cut_off"] += partial
        # A checkpoint may have its name before its ranks have reported it.
        self.assertIn(found, (job.saved()[-1], job.saved()[-1] + 1), output)
        if survive:
            self.counts["told"] += len(told)
            for line in told:
                self.assertIn(f"rank {victim} of {RANKS}", line, output)
            self.assertEqual(len(told), RANKS - 1, output)
        remove_before(self.root, found)

    def test_kills(self):
        seed = int(os.environ.get("CAIRN_TEST_SEED") or time.time_ns() % 2**32)
        print(f"CAIRN_TEST_SEED={seed}", flush=True)
        moments = random.Random(seed)
        for kill in range(self.kills):
            self.kill_once("async" if kill % 2 == 0 else "save", kill % 3 == 0, moments)
        job = Job(self.program, RANKS, self.root, "save", self.folder, self.limit_s)  # removes the leftovers
        self.assertTrue(job.wait_for(f"saved {self.newest() + 1}", START_S), job.lines)
        leftovers = [path.name for path in self.root.glob("*.partial")]
        job.process.terminate()
        job.process.wait()
        self.assertLessEqual(len(leftovers), 1, leftovers)  # of the save in progress
        for number, what in ((self.kills, "kills of a rank"), (self.counts["cut_off"], "of these in the middle of a save"),
                             (self.counts["told"], "times a rank that was left said which one is missing"),
                             (self.counts["launcher"], "times the launcher hung")):
            print(f"[cairn] did {number} {what}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=RankKills.kills)
    parser.add_argument("--limit-s", type=float, default=RankKills.limit_s)
    options = parser.parse_args()
    RankKills.kills, RankKills.limit_s, RankKills.program = options.kills, options.limit_s, options.program
    unittest.main(argv=sys.argv[:1], verbosity=2)
