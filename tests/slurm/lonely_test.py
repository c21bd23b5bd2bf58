"""Tasks of a step that each believe to be alone, because srun started them without PMIx, do not save;
the single process of a batch script does."""

import os

from job import CAIRN, SlurmTest, finish, main, output_of, start, wait_for


class Lonely(SlurmTest):
    def save(self, *srun):
        return finish(start(*srun, CAIRN, "demo", "save", "--dir", self.root, "--model", f"@{self.model}"))

    def test_tasks_without_pmix_are_refused(self):
        for placement in ("--nodes=1", "--ntasks=3"), ("--nodes=2", "--ntasks=2"):
            with self.subTest(placement=placement):
                # In a Slurm job Open MPI 4 asks srun for PMIx, and ends without it; other MPIs continue alone.
                done = self.save("srun", "--mpi=none", *placement, "env", "-u", "SLURM_NODELIST", "-u", "SLURM_JOBID")
                tasks = int(placement[1].split("=")[1])
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(done.err.count("cairn: error: not saved: "), tasks, done.err)
                self.assertIn("--mpi=pmix", done.err)
                self.assertEqual(list(self.root.glob("checkpoint-*")), [])

    def test_one_process_of_a_batch_script_saves(self):
        log = self.folder / "job.log"
        script = self.folder / "job.sh"
        script.write_text(f"#!/bin/sh\n{CAIRN} demo save --dir {self.root} --model @{self.model} && echo done\n")
        output_of("sbatch", "--parsable", "--nodes=1", "--ntasks=3", f"--output={log}", "--chdir", self.folder, script,
                  PATH=os.environ["PATH"])
        wait_for("the job's end", lambda: log.exists() and ("done" in log.read_text() or "error" in log.read_text()))
        self.assertIn("done", log.read_text())
        self.assertNotIn("MPI sees one rank", log.read_text())
        self.assertEqual(len(list(self.root.glob("checkpoint-*"))), 1)

    def test_a_single_task_of_a_step_saves(self):
        done = self.save("srun", "--mpi=pmix", "--ntasks=1")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(len(list(self.root.glob("checkpoint-*"))), 1)


if __name__ == "__main__":
    main()
