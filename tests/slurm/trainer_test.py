"""slurm/train.sbatch as a site would submit it: told to save and then to end, the job requeues itself and resumes;
another job, of one node, completes the training."""

import os
import pathlib
import re

from job import BIN, SlurmTest, main, output_of, wait_for, wait_for_state

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "slurm/train.sbatch"


class Trainer(SlurmTest):
    read = 0

    def submit(self, *options, nodes=2):
        self.log = self.folder / "job.log"
        return output_of("sbatch", "--parsable", f"--output={self.log}", "--chdir", self.folder,
                         f"--nodes={nodes}", SCRIPT, *options, TRAINER=str(BIN / "trainer"),
                         TRAINER_ROOT=str(self.root), PATH=f"{os.environ['PATH']}:/usr/sbin").strip()

    def said(self, pattern):
        """A match in the job's log, after all stops before."""
        return re.search(pattern, self.log.read_text()[self.read:] if self.log.exists() else "", re.MULTILINE)

    def stop(self, job):
        """Ends the job as Slurm does before the time limit, by --signal. Returns the step, when the job waits again."""
        output_of("scancel", "--signal=TERM", job)
        stopped = wait_for("the end", lambda: self.said(r"^stopped at step (\d+) \(SIGTERM\)$"))[1]
        wait_for_state(job, "PENDING")
        self.read = len(self.log.read_text())
        return int(stopped)

    def test_a_job_that_is_told_to_end_goes_on_later(self):
        self.addCleanup(lambda: print(self.log.read_text() if self.log.exists() else "the job wrote nothing"))
        options = ("--every", 0, "--width", 16, "--log", 500)
        job = self.submit("--steps", 1000000000, *options)
        wait_for("the training began", lambda: self.said("^starting at step 0 on 4 ranks$"))
        output_of("scancel", "--signal=USR1", job)
        wait_for("a save", lambda: self.said(r"^saved step \d+$"))
        stopped = self.stop(job)
        # Slurm holds a requeued job back for two minutes. Started within the same second or two, it would still meet
        # the end of its own credential: "Job already killed".
        output_of("scontrol", "update", f"JobId={job}", "StartTime=now+3")
        wait_for("the training goes on", lambda: self.said(f"^resuming at step {stopped} on 4 ranks$"))
        stopped = self.stop(job)
        output_of("scancel", job)

        job = self.submit("--steps", stopped + 10, *options, nodes=1)
        wait_for_state(job, "COMPLETED")
        self.assertTrue(self.said(f"^resuming at step {stopped} on 2 ranks$"))
        self.assertTrue(self.said(f"^complete at step {stopped + 10}, digest"))


if __name__ == "__main__":
    main()
