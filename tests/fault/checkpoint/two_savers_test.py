"""Two savers of one root: refused, stopped in the middle of a save (SIGSTOP) while the other takes over and then
continued, killed, restarted by the batch system, and overwriting each other's steps, in synchronous and asynchronous
saves. No checkpoint may be lost, and none may be mixed.

two_savers_test.py SAVER ROUNDS: the number of rounds for each kind of file system, with and without atomic exchange
and locks; CAIRN_FAULT emulates the kinds."""

import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import unittest

from driven import Saver

SAVER, ROUNDS = sys.argv[1], int(sys.argv[2])
SEED = int(os.environ.get("CAIRN_TEST_SEED", random.randrange(1 << 30)))
LEASE_S = 1.0
LONG_LEASE_S = 30  # for leases that must not run out on a busy machine
STATE = "1"  # ErrorKind::kState
# On a busy machine a lease of a second may run out without another saver.
RAN_OUT = r"the lease of '.*' ran out .* before the save was complete: .*; save again"
HOWS = ("save", "save_async")
JOB = {"SLURM_JOB_ID": "77"}
REQUEUED_JOB = {**JOB, "SLURM_RESTART_COUNT": "1"}
KINDS = {"plain": "", "no_exchange": "exchange:errno=EINVAL", "no_locks": "flock:errno=ENOLCK",
         "neither": "exchange:errno=EINVAL;flock:errno=ENOLCK"}


class TwoSavers(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="savers-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.random = random.Random(SEED)
        self.version = 0
        self.saved = {}  # step -> version that must be loaded

    def saver(self, faults="", ranks=1, **environment):
        saver = Saver(SAVER, self.root, faults, ranks, **environment)
        self.addCleanup(saver.end)
        return saver

    def next_version(self):
        self.version += 1
        return self.version

    def save(self, saver, step, how="save"):
        version = self.next_version()
        answer = saver.ask(f"{how} {step} {version}")
        while re.search(RAN_OUT, answer):
            answer = saver.ask(f"{how} {step} {version}")
        self.assertEqual(answer, "saved")
        self.saved[step] = version

    def check(self, saver):
        """Every saved step is intact, and the root has nothing else."""
        for step, version in self.saved.items():
            self.assertEqual(saver.ask(f"load {step}"), f"loaded {version}", f"step {step}; seed {SEED}")
        expected = {f"checkpoint-{step}" for step in self.saved}
        own = {".cairn", "latest_checkpointed_iteration.txt", "cairn.log.jsonl"}
        names = {path.name for path in self.root.iterdir()} - own
        self.assertEqual(names, expected, f"seed {SEED}")

    def check_refused(self, answer, or_because=None):
        self.assertTrue(answer.startswith(f"error {STATE} "), answer)
        named = r"another saver.*process \d+ on \S+ \(.*since \d{4}-\d\d-\d\d"
        self.assertRegex(answer, f"{named}|{or_because}" if or_because else named)

    def test_the_second_of_two_living_savers_is_refused(self):
        first, second = self.saver(), self.saver()
        for saver in first, second:
            self.assertEqual(saver.ask(f"new {LONG_LEASE_S} 0"), "ok")
        self.save(first, 1)
        answer = second.ask("save 2 99")
        self.check_refused(answer)
        self.assertIn(f"process {first.process.pid} on", answer)
        self.save(first, 3)
        self.check(second)
        self.assertEqual(first.ask(f"new {LONG_LEASE_S} 0"), "ok")  # its lease is released
        self.save(second, 4)
        self.check(first)

    def test_both_at_once_and_one_gets_it(self):
        savers = [self.saver(), self.saver()]
        for saver in savers:
            self.assertEqual(saver.ask(f"new {LONG_LEASE_S} 0"), "ok")
        versions = [self.next_version(), self.next_version()]
        for saver, version in zip(savers, versions):
            saver.send(f"save 5 {version}")
        answers = [saver.receive() for saver in savers]
        winner = answers.index("saved")
        self.check_refused(answers[1 - winner])
        self.saved[5] = versions[winner]
        self.check(savers[winner])

    def rounds(self, faults, how, ranks=1, zombie_job=None, taker_job=None, taker_wait="20"):
        zombie = self.saver(faults, ranks, **(zombie_job or {}))
        taker = self.saver(faults, ranks, **(taker_job or {}))
        stopped_before = taken_over = 0
        for _ in range(ROUNDS):
            self.assertEqual(zombie.ask(f"new {LEASE_S} 20"), "ok")
            self.assertEqual(taker.ask(f"new {LONG_LEASE_S} {taker_wait}"), "ok")
            self.save(zombie, 1)  # the first saver takes longer
            began = time.monotonic()
            self.save(zombie, 1, how)
            duration = time.monotonic() - began
            step, other = self.random.choice([(1, 1), (2, 1), (1, 2), (2, 2), (2, 3)])
            version = self.next_version()
            zombie.send(f"{how} {step} {version}")
            time.sleep(self.random.random() * 0.8 * duration)
            zombie.signal(signal.SIGSTOP)
            before = dict(self.saved)
            self.save(taker, other, how)
            found = taker.ask(f"load {step}") if step != other else ""
            zombie.signal(signal.SIGCONT)
            answer = zombie.receive()
            if answer != "saved":
                self.check_refused(answer, RAN_OUT)  # refused by its own lease time
                stopped_before += 1
            if step != other:
                is_published = answer == "saved" or "is complete" in answer
                if is_published:
                    self.saved[step] = version
                elif found == f"loaded {version}":
                    self.fail(f"what {answer!r} was said of is there")
                if step in self.saved:
                    self.assertEqual(found, f"loaded {self.saved[step]}", f"{before}; {answer}; seed {SEED}")
            self.check(taker)
            if answer != "saved":
                self.check_refused(zombie.ask(f"{how} 9 9"))  # refused from now on
                taken_over += 1
            self.save(taker, other, how)
            self.check(taker)
        zombie.end()
        taker.end()
        print(f"[cairn] did {ROUNDS} rounds of two savers", flush=True)
        print(f"{ROUNDS} rounds of {how} on {ranks} ranks with '{faults}': {stopped_before} stopped in time, {taken_over} "
              f"refused for good; seed {SEED}", flush=True)

    def test_zombies(self):
        for how in HOWS:
            for name, faults in KINDS.items():
                with self.subTest(how=how, kind=name):
                    self.rounds(faults, how)

    def test_zombies_of_two_ranks(self):
        self.rounds(KINDS["plain"], "save_async", ranks=2)

    def test_a_zombie_whose_job_was_started_again(self):
        self.rounds(KINDS["plain"], "save_async", zombie_job=JOB, taker_job=REQUEUED_JOB, taker_wait="-")

    def test_a_job_that_was_started_again_waits_for_the_end_of_the_one_before(self):
        before, again, other = self.saver(**JOB), self.saver(**REQUEUED_JOB), self.saver()
        for saver in before, again, other:
            self.assertEqual(saver.ask(f"new {LONG_LEASE_S} -"), "ok")
        self.save(before, 1)
        versions = [self.next_version(), self.next_version()]
        before.send(f"save_async 2 {versions[0]}")
        again.send(f"save_async 3 {versions[1]}")
        self.check_refused(other.ask("save_async 9 9"))
        self.assertEqual(before.receive(), "saved")
        self.saved[2] = versions[0]
        time.sleep(0.5)
        self.check(other)  # the waiting saver has left nothing
        self.assertEqual(before.ask(f"new {LONG_LEASE_S} 0"), "ok")  # its lease is released
        self.assertEqual(again.receive(), "saved")
        self.saved[3] = versions[1]
        self.check(again)

    def test_a_job_that_was_started_again_waits_for_the_death_of_the_one_before(self):
        before, again = self.saver(**JOB), self.saver(**REQUEUED_JOB)
        for saver in before, again:
            self.assertEqual(saver.ask(f"new {LONG_LEASE_S} -"), "ok")
        self.save(before, 1)
        versions = [self.next_version(), self.next_version()]
        before.send(f"save_async 2 {versions[0]}")
        again.send(f"save_async 3 {versions[1]}")
        time.sleep(self.random.random() * 0.1)
        before.end()
        self.assertEqual(again.receive(), "saved")
        self.saved[3] = versions[1]
        if again.ask("load 2") == f"loaded {versions[0]}":  # the save was complete before
            self.saved[2] = versions[0]
        self.check(again)

    def test_killed_in_the_middle_of_an_overwrite(self):
        for faults in KINDS.values():
            taker = self.saver(faults)
            for _ in range(ROUNDS):
                self.assertEqual(taker.ask("new 300 0"), "ok")  # the lease of the previous round is released
                victim = self.saver(faults)
                self.assertEqual(victim.ask("new 300 0"), "ok")
                began = time.monotonic()
                self.save(victim, 1)
                duration = time.monotonic() - began
                version = self.next_version()
                victim.send(f"{self.random.choice(HOWS)} 1 {version}")
                time.sleep(self.random.random() * 0.8 * duration)
                victim.end()
                began = time.monotonic()
                self.assertEqual(taker.ask("new 300 0"), "ok")
                found = taker.ask("load 1")
                self.assertIn(found, (f"loaded {self.saved[1]}", f"loaded {version}"), f"seed {SEED}")
                self.saved[1] = int(found.split()[1])
                self.save(taker, 2)  # proven dead: no waiting for its lease
                self.assertLess(time.monotonic() - began, 250)
                self.check(taker)
            taker.end()

    def test_a_load_while_another_overwrites(self):
        for faults in KINDS["plain"], KINDS["no_exchange"]:
            saver, reader = self.saver(faults), self.saver()
            for each in saver, reader:
                self.assertEqual(each.ask(f"new {LONG_LEASE_S} 0"), "ok")
            self.save(saver, 1)
            for _ in range(5 * ROUNDS):
                version = self.next_version()
                saver.send(f"{self.random.choice(HOWS)} 1 {version}")
                self.assertIn(reader.ask("load 1"), (f"loaded {self.saved[1]}", f"loaded {version}"))
                self.assertEqual(saver.receive(), "saved")
                self.saved[1] = version
            saver.end()


if __name__ == "__main__":
    print(f"seed {SEED}", flush=True)
    unittest.main(argv=sys.argv[:1], verbosity=2)
