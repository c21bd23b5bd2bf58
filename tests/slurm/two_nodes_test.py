"""A checkpoint saved by a Slurm step on two nodes, verified, and loaded by other numbers of tasks and nodes;
and steps in which a task stops."""

import os
import random
import re
import subprocess

from job import BIN, CAIRN, SlurmTest, finish, main, start

ON_TWO = ("--nodes=2", "--ntasks-per-node=2")


class TwoNodes(SlurmTest):
    def test_mpi_sees_two_nodes(self):
        printed = self.step(ON_TWO, BIN / "slurm_node_probe", nodes={"n1": 2, "n2": 2})
        seen = re.findall(r"rank (\d) of 4: node (n\d), (\d) ranks share its memory", printed)
        self.assertEqual(seen, [("0", "n1", "2"), ("1", "n1", "2"), ("2", "n2", "2"), ("3", "n2", "2")], printed)

    def test_save_on_two_nodes_and_load_on_other_tasks(self):
        saved = self.cairn(ON_TWO, "demo", "save", "--dir", self.root, "--model", f"@{self.model}",
                           nodes={"n1": 2, "n2": 2})
        self.assertEqual(saved["layout"], "tp=2,pp=2")
        verified = self.cairn(ON_TWO, "verify", self.root, nodes={"n1": 2, "n2": 2})
        self.assertEqual((verified["good"], verified["has_checksums"]), (True, True))
        self.assertGreater(verified["blocks"], 0)
        for placement, layout, nodes in (
                (("--nodes=1", "--nodelist=n2", "--ntasks=3"), "fsdp=3", {"n2": 3}),
                (("--nodes=2", "--ntasks-per-node=4"), "tp=2,pp=2,dp=2", {"n1": 4, "n2": 4}),
                (("--nodes=2", "--ntasks=3", "--distribution=cyclic"), "fsdp=3", {"n1": 2, "n2": 1})):
            with self.subTest(placement=placement):
                loaded = self.cairn(placement, "demo", "load", "--dir", self.root, "--layout", layout, nodes=nodes)
                self.assertTrue(loaded["equal"])
                self.assertEqual(loaded["tensors"], saved["tensors"])
                self.assertGreaterEqual(loaded["size_bytes_compared"], saved["size_bytes"])

    def test_a_task_that_stops_is_named(self):
        """A scenario of tests/conformance/silence_program.cpp on two nodes, and one on a single node
        in memory, in parallel."""
        seed = os.environ.get("CAIRN_TEST_SEED") or str(random.randrange(1 << 31))
        engine = random.Random(seed).choice(("direct", "mpiio", "posix"))
        places = {engine: (("--nodes=2", "--distribution=cyclic"), self.folder), "auto": (("--nodes=1",), "/dev/shm")}
        steps = {}
        for name, (placement, folder) in places.items():
            steps[name] = start("srun", "--mpi=pmix", *placement, "--ntasks=3", BIN / "silence_program", name, folder,
                                "1", seed, stderr=subprocess.STDOUT)
        for name, step in steps.items():
            with self.subTest(engine=name, seed=seed):
                printed = finish(step).out
                # The number of scenarios depends on the engine: some stop at different calls in every run.
                self.assertRegex(printed, rf"silence {name}: ([3-9]) of \1 good")
                self.assertNotIn("bad: ", printed)

    def test_a_command_of_one_task(self):
        """Each is a process of its own, and does not wait for the other tasks."""
        on_n1 = "--nodelist=n1"  # otherwise Slurm takes n2 while the previous step is still ending
        self.cairn((on_n1, "--ntasks=1"), "demo", "save", "--dir", self.root, "--model", f"@{self.model}", nodes={"n1": 1})
        printed = self.step((on_n1, "--ntasks=2"), BIN / "nested_rank", CAIRN, "inspect", self.root / "checkpoint-100",
                            "--sections", nodes={"n1": 2})
        self.assertIn("optimizer", printed)


if __name__ == "__main__":
    main()
