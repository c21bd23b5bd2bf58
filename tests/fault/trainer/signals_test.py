"""examples/trainer: its reactions to signals, its exit codes, and that a stopped training ends
as an undisturbed one."""

import os
import re
import signal
import subprocess
import unittest

from trainer import LIMIT_S, STOPPED, Trainer, TrainerTest


class Signals(TrainerTest):
    def step_of(self, line):
        return int(re.search(r"step (\d+)", line)[1])

    def test_saves_when_asked_and_goes_on_on_other_ranks(self):
        endless = ("--steps", 1000000000, "--every", 0, "--width", 16)
        trainer = Trainer(self, 3, *endless)
        self.assertEqual(trainer.wait_for("starting"), "starting at step 0 on 3 ranks")
        os.kill(trainer.ranks()[1], signal.SIGUSR1)  # one rank only
        saved = self.step_of(trainer.wait_for("saved"))
        trainer.wait_for("step")  # it continues
        os.kill(trainer.ranks()[2], signal.SIGTERM)
        stopped = self.step_of(trainer.wait_for("saved"))
        self.assertEqual(trainer.end(), STOPPED, trainer.said())
        self.assertEqual(trainer.lines[-1], f"stopped at step {stopped} (SIGTERM)")
        self.assertGreater(stopped, saved)
        self.assertEqual({path.name for path in self.root.glob("checkpoint-*")},
                         {f"checkpoint-{saved}", f"checkpoint-{stopped}"})

        short = ("--steps", stopped + 10, "--width", 16)
        resumed = self.complete(4, *short)
        self.assertEqual(resumed.lines[0], f"resuming at step {stopped} on 4 ranks")
        self.assertEqual(self.complete(2, *short).digest(), resumed.digest())  # already complete: nothing is trained
        self.new_root()
        self.assertEqual(self.complete(1, *short).digest(), resumed.digest())

    def test_learns(self):
        losses = self.complete(1).losses()
        self.assertLess(float(losses[300][0]), float(losses[20][0]) / 5)
        self.assertLess(float(losses[300][1]), float(losses[20][1]) / 5)

    def refused(self, says, *options):
        """Runs without a launcher, which prints lines of its own and takes its time."""
        done = subprocess.run([os.environ["CAIRN_TRAINER"], *options], capture_output=True, text=True, check=False,
                              timeout=LIMIT_S, cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"\Atrainer: [^\n]*\n\Z")
        self.assertIn(says, done.stderr)

    def test_refuses_in_one_line(self):
        self.refused("there is no option --rank", "--rank", "3")
        self.refused("--every has no value", "--steps", "5", "--every")
        for wrong in ("", "3x", "1000000001"):
            self.refused(f"--steps is '{wrong}'; it must be a whole number from 1 to 1000000000", "--steps", wrong)

    def test_refuses_the_checkpoint_of_another_training(self):
        self.complete(1, "--steps", 2)
        other = Trainer(self, 2, "--seed", 2)
        self.assertEqual(other.end(), 1, other.said())
        self.assertEqual(len(other.own_errors()), 1, other.said())
        self.assertIn("is of a run with 'batch 64, width 64, seed 1', not 'batch 64, width 64, seed 2'", other.said())


if __name__ == "__main__":
    unittest.main(verbosity=2)
