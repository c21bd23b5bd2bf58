"""Directories that torch.distributed.checkpoint wrote as Hugging Face files (one set per rank, tensors in parts, cut unevenly
and in two dimensions) become a plain Hugging Face directory with every tensor whole and equal to the truth."""

import support


class TorchDcpDirectories(support.TestCase):
    def check(self, name, tensors):
        target = support.fresh(name)
        support.cairn("convert", support.DATA / "dcp" / name / "ckpt", target, "--to", "hf", ranks=self.ranks)
        truth = support.read_file(support.DATA / "dcp" / name / "truth.safetensors")
        # The writer does not store the step, which the truth has.
        stored = {key: tensor for key, tensor in truth.items() if not key.endswith(".step")}
        self.assertEqual(len(stored), tensors)
        sections = support.read_sections(target)
        found = {key: tensor for section in sections.values() for key, tensor in section.items()}
        self.assertEqual(len(found), sum(len(section) for section in sections.values()), "a name in two sections")
        self.assert_same_tensors(found, stored)

    def test_one_file_per_rank(self):
        self.check("hf_sharded", 27)

    def test_two_dimensions_with_optimizer(self):
        self.check("hf_sharded_2d", 60)

    def test_consolidated(self):
        self.check("hf_consolidated", 27)


if __name__ == "__main__":
    support.main()
