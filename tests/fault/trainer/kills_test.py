"""A training whose job is killed (SIGKILL of all its processes) at random moments and started again ends bit for bit as
one that was never killed, on equal and on other numbers of ranks.

    kills_test.py --kills 2 --steps 240

A launcher that hangs before the training begins is killed, counted separately, and started again."""

import argparse
import os
import random
import time
import unittest

from trainer import Trainer, TrainerTest

RANKS = (1, 3, 4)
LOG = 20
MOST_HANGS = 3


class Kills(TrainerTest):
    kills, steps = 2, 240

    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("CAIRN_TEST_SEED") or time.time_ns() % 2**32)
        print(f"CAIRN_TEST_SEED={self.seed}", flush=True)
        self.random = random.Random(self.seed)
        self.hangs = self.in_saves = 0
        self.options = ("--steps", self.steps, "--every", 10, "--log", LOG)

    def uninterrupted(self, ranks):
        self.new_root()
        trainer = self.to_its_end(ranks)
        self.assertEqual(trainer.lines[0], f"starting at step 0 on {ranks} ranks")
        self.assertEqual(len(trainer.losses()), self.steps // LOG)
        return trainer

    def to_its_end(self, ranks):
        """Resumes the training, and does not kill it."""
        while True:
            trainer = Trainer(self, ranks, *self.options)
            code = trainer.end()
            if code is not None:
                self.assertEqual(code, 0, trainer.said())
                trainer.took_s = time.monotonic() - trainer.began
                return trainer
            self.count_hang(trainer)

    def count_hang(self, trainer):
        """Checks a job that was killed because it hung: a failure if the training had begun."""
        self.assertEqual(trainer.lines, [], f"seed {self.seed}: {trainer.said()}")
        self.hangs += 1
        self.assertLessEqual(self.hangs, MOST_HANGS, "the launcher hangs, again and again")

    def unfinished(self):
        """Names that a save is writing, or that a kill has left."""
        return set(self.root.glob("*.partial"))

    def life(self, next_ranks, whole, kills):
        """One training, killed that many times; `whole` is one without kills. Returns the losses of all its jobs."""
        self.new_root()
        losses, steps, done = {}, [], 0
        while done < kills:
            before = self.unfinished()
            trainer = Trainer(self, next_ranks(), *self.options)
            time.sleep(self.random.uniform(0, whole.took_s))
            while done % 2 == 0 and self.unfinished() <= before and trainer.process.poll() is None:  # until it saves
                time.sleep(0.0005)
                if trainer.is_silent():
                    break
            is_silent = trainer.is_silent()
            is_killed = trainer.kill()
            if is_killed and is_silent:
                self.count_hang(trainer)
            elif is_killed:
                done += 1
                self.in_saves += not self.unfinished() <= before
            else:
                self.assertEqual(trainer.process.returncode, 0, trainer.said())
                self.assertEqual(trainer.digest(), whole.digest(), trainer.said())
                self.new_root()  # a new one, to have something to kill
            losses.update(trainer.losses())
            steps.append(trainer.lines[0] if trainer.lines else "before it began")
        last = self.to_its_end(next_ranks())
        losses.update(last.losses())
        print("\n".join([*steps, last.lines[0]]), flush=True)
        self.assertEqual(last.digest(), whole.digest(), f"seed {self.seed}: {last.said()}")
        self.assertEqual({step: loss for step, (loss, _) in losses.items()},
                         {step: loss for step, (loss, _) in whole.losses().items() if step in losses})
        return losses

    def test_kills(self):
        whole = {ranks: self.uninterrupted(ranks) for ranks in RANKS}
        self.assertEqual(len({trainer.digest() for trainer in whole.values()}), 1)
        equal = self.kills // 2
        # With equal ranks each continues with its own random numbers, so the validation is the same as well.
        losses = self.life(lambda: 3, whole[3], equal)
        self.assertEqual(losses, {step: both for step, both in whole[3].losses().items() if step in losses})
        ranks = RANKS[0]

        def other_ranks():
            nonlocal ranks
            ranks = self.random.choice([count for count in RANKS if count != ranks])
            return ranks
        self.life(other_ranks, whole[4], self.kills - equal)
        if self.kills >= 10:
            self.assertGreater(self.in_saves, 0, "no kill met a save")
        print(f"[cairn] did {self.kills} kills of a whole training", flush=True)
        print(f"{self.in_saves} of them in the middle of a save; {self.hangs} hangs of the launcher before a training began; "
              f"seed {self.seed}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=Kills.kills)
    parser.add_argument("--steps", type=int, default=Kills.steps, help=f"of the training; a multiple of {LOG}")
    arguments = parser.parse_args()
    Kills.kills, Kills.steps = arguments.kills, arguments.steps
    unittest.main(argv=["test"], verbosity=2)
