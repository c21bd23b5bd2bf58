"""slurm/train.sbatch as a site would submit it: warned in the middle, it saves, requeues itself, and continues."""

import json
import os
import pathlib
import re

from job import CAIRN, SlurmTest, main, output_of, wait_for, wait_for_state

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "slurm/train.sbatch"


class Train(SlurmTest):
    def submit(self, last_step):
        self.log = self.folder / "job.log"
        printed = output_of("sbatch", "--parsable", f"--output={self.log}", "--chdir", self.folder, SCRIPT,
                            CAIRN=str(CAIRN), CAIRN_ROOT=str(self.root), CAIRN_LAST_STEP=str(last_step),
                            CAIRN_STATE=f"--model @{self.model}", PATH=f"{os.environ['PATH']}:/usr/sbin")
        return printed.strip()

    def log_says(self, text):
        return self.log.exists() and text in self.log.read_text()

    def test_a_job_that_is_warned_goes_on_where_it_saved(self):
        job = self.submit(last_step=400)
        self.addCleanup(lambda: print(self.log.read_text() if self.log.exists() else "the job wrote nothing"))
        wait_for("the first checkpoint", lambda: (self.root / "checkpoint-100").is_dir())
        output_of("scancel", "--batch", "--signal=USR1", job)
        wait_for_state(job, "PENDING")  # back in the queue
        stopped_at = int(re.search(r"stopping after step (\d+), back into the queue", self.log.read_text())[1])
        self.assertIn(stopped_at, (100, 200, 300))
        # Slurm holds a requeued job back for two minutes. Started within the same second or two, it would still meet
        # the end of its own credential: "Job already killed".
        output_of("scontrol", "update", f"JobId={job}", "StartTime=now+3")
        wait_for_state(job, "COMPLETED")
        log = self.log.read_text()
        self.assertIn("start 0 on 2 nodes with 4 tasks\n", log)
        self.assertIn("start 1 on 2 nodes with 4 tasks\n", log)
        self.assertIn(f"going on from step {stopped_at}\n", log)
        self.assertEqual(log.count("equal bit for bit"), 1, log)
        self.assertIn("complete at step 400\n", log)
        listed = json.loads(output_of(CAIRN, "ls", self.root, "--json"))["checkpoints"]
        self.assertEqual([(row["step"], row["state"]) for row in listed],
                         [(step, "complete") for step in (100, 200, 300, 400)])


if __name__ == "__main__":
    main()
