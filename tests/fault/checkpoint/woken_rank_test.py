"""A rank that is stopped in the middle of an asynchronous save (SIGSTOP), and continues when the other ranks are gone
and another job has the root: the other ranks name it within the limit, and it commits nothing.

    woken_rank_test.py RANK_SAVER
"""

import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import unittest

from rank_job import END_S, START_S, Job
from root import newest

RANK_SAVER = sys.argv[1]
SEED = int(os.environ.get("CAIRN_TEST_SEED", random.randrange(1 << 30)))
RANKS = 3
LIMIT_S = 10  # on a busy machine a rank may not run for some seconds
LEASE_S = 10  # how long another saver waits for a stopped one


class WokenRank(unittest.TestCase):
    def setUp(self):
        in_memory = pathlib.Path("/dev/shm")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="woken-", dir=in_memory if in_memory.is_dir() else None))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.root = self.folder / "root"

    def job(self, **how):
        job = Job(RANK_SAVER, RANKS, self.root, "async", self.folder, LIMIT_S, lease_s=LEASE_S, **how)
        self.addCleanup(job.kill)
        return job

    def test_a_rank_that_goes_on_later_commits_nothing(self):
        moments = random.Random(SEED)
        for victim in 0, RANKS - 1:  # rank 0 holds the lease
            with self.subTest(victim=victim, seed=SEED):
                before = newest(self, self.root) if self.root.exists() else 0
                stop = f"write:rank={victim}:path=.safetensors:stop=1:times=1:after={moments.randrange(40, 80)}"
                job = self.job(survive=True, faults=stop)
                self.assertTrue(job.wait_for(f"rank {victim} of {RANKS} ", START_S, times=RANKS - 1), job.output())
                self.assertEqual(len(job.told()), RANKS - 1, job.output())
                last = job.saved()[-1]
                self.assertGreater(last, before)
                self.assertEqual(newest(self, self.root), last, job.output())

                other = self.job()
                self.assertTrue(other.wait_for(f"saved {last + 1}", START_S), other.output())
                manifest = self.root / f"checkpoint-{last + 1}" / "cairn.json"
                taken_over = manifest.read_bytes()
                os.kill(job.pids()[victim], signal.SIGCONT)
                self.assertFalse(job.left_after(END_S), job.output())
                self.assertEqual(len(job.told(RANKS)), RANKS, job.output())
                self.assertEqual(job.saved()[-1], last, job.output())
                now = other.saved()[-1]
                self.assertTrue(other.wait_for(f"saved {now + 2}", START_S), other.output())
                self.assertEqual(manifest.read_bytes(), taken_over)
                other.kill()
                self.assertEqual(other.told(), [])
                self.assertIn(newest(self, self.root), (other.saved()[-1], other.saved()[-1] + 1))


if __name__ == "__main__":
    print(f"CAIRN_TEST_SEED={SEED}", flush=True)
    unittest.main(argv=sys.argv[:1], verbosity=2)
