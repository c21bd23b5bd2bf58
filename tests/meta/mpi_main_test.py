"""tests/support/mpi_main.cpp fails whenever a test on several ranks does: on any rank, by hanging, by leaving the other
ranks in a collective, or by running on another number of ranks than expected. Started by hand it prints a command that
works."""

import argparse
import os
import subprocess
import sys
import time
import unittest

PROBE = []


def run(test, ranks=3, **environment):
    variables = dict(os.environ, CAIRN_TEST_RANKS="3", CAIRN_TEST_TIMEOUT_S="600", GTEST_FILTER=f"Probe.{test}")
    variables.update(environment)
    command = [*PROBE[:2], str(ranks), PROBE[2]]
    start = time.monotonic()
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=900)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - start


class MpiMain(unittest.TestCase):
    def test_passes(self):
        status, output, _ = run("Passes")
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("[       OK ]"), 1, "rank 0 alone prints")

    def test_one_rank_fails(self):
        status, output, _ = run("FailsOnRank1")
        self.assertNotEqual(status, 0, output)
        self.assertIn("[rank 1] Probe.FailsOnRank1 failed at", output)
        self.assertIn("(on another rank)", output)

    def test_one_rank_leaves_a_collective(self):
        status, output, seconds = run("LeavesACollectiveOnRank1", CAIRN_TEST_PATIENCE_S="1")
        self.assertNotEqual(status, 0, output)
        self.assertIn("[rank 1] failed Probe.LeavesACollectiveOnRank1 alone", output)
        self.assertLess(seconds, 300)

    def test_one_rank_hangs(self):
        status, output, seconds = run("HangsOnRank1", CAIRN_TEST_TIMEOUT_S="8")
        self.assertNotEqual(status, 0, output)
        self.assertIn("[watchdog] rank 1 is stuck in Probe.HangsOnRank1", output)
        self.assertLess(seconds, 300)

    def test_another_number_of_ranks(self):
        status, output, _ = run("Passes", ranks=2)
        self.assertNotEqual(status, 0, output)
        self.assertIn("started on 2 rank(s), but CAIRN_TEST_RANKS is 3", output)

    def test_started_by_hand_it_prints_a_command_that_works(self):
        own = {name: value for name, value in os.environ.items() if not name.startswith(("CAIRN_", "OMPI_"))}
        own["GTEST_COLOR"] = "no"
        alone = subprocess.run([PROBE[2], "--gtest_filter=Probe.Has*"], env=own, capture_output=True, text=True, check=False,
                               timeout=900)
        self.assertNotEqual(alone.returncode, 0, alone.stdout)
        said, by_hand, _ = alone.stderr.splitlines()[-3:]
        self.assertIn("started on 1 rank(s), but CAIRN_TEST_RANKS is not set", said)
        done = subprocess.run(by_hand, env=own, shell=True, capture_output=True, text=True, check=False, timeout=900)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("[       OK ] Probe.HasItsPlaces", done.stdout)
        self.assertNotIn("Probe.Passes", done.stdout)

    def test_no_test_selected(self):
        status, output, _ = run("NoSuchTest")
        self.assertNotEqual(status, 0, output)
        self.assertIn("no test was run", output)

    def test_skips_are_reported(self):
        status, output, _ = run("SkipsEverywhere")
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("[cairn] skipped Probe.SkipsEverywhere: a reason"), 1, output)

    def test_skip_of_one_rank_is_reported(self):
        status, output, _ = run("SkipsOnRank1")
        self.assertEqual(status, 0, output)
        self.assertIn("[cairn] skipped Probe.SkipsOnRank1 on rank 1: another reason", output)

    def test_ranks_share_the_seed(self):
        status, output, _ = run("DrawsTheSameNumber")
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("CAIRN_TEST_SEED="), 1, output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("launch", nargs=argparse.REMAINDER, help="MPIEXEC NUMPROC_FLAG PROBE")
    PROBE = parser.parse_args().launch
    unittest.main(argv=sys.argv[:1])
