"""A checkpoint saved by a Slurm step on two nodes, verified, and loaded by other numbers of tasks and nodes."""

import re

from job import BIN, SlurmTest, main

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


if __name__ == "__main__":
    main()
