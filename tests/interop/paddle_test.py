"""Unified Checkpoint directories that PaddleNLP wrote (tests/data/paddle/README.md) become Hugging Face file sets,
section by section, with every tensor of every section equal to the truth."""

import support

# Paddle stores BF16 under the name U16.
SIXTEEN_BITS = ("BF16", "U16")
STATES = ("moment1_0", "moment2_0", "beta1_pow_acc_0", "beta2_pow_acc_0")
# The sections of a converted directory, and their names in the truth.
TRUTH_PREFIX = {"model": "model", "adapter_model": "model", "master_weights": "master"}


def true_name(section, name, masters_as_model):
    if section == "optimizer":
        parameter, _, state = name.rpartition("/")
        assert state in STATES, name
        return f"{state}/{parameter}"
    prefix = "master" if masters_as_model else TRUTH_PREFIX[section]
    return f"{prefix}/{name}"


class Paddle(support.TestCase):
    def check(self, name, truth_file, sections, masters_as_model=False, tied=False):
        source, target = support.DATA / "paddle" / name, support.fresh(name)
        support.cairn("convert", source, target, "--to", "hf", "--keep-names", ranks=self.ranks)
        truth = support.read_file(support.DATA / "paddle/truth" / truth_file)
        found = support.read_sections(target)
        self.assertEqual({section: len(tensors) for section, tensors in found.items()}, sections)
        for section, tensors in support.read_sections(source).items():
            section = "adapter_model" if section == "peft_model" else section
            # The names that Paddle stored, with the contents of the truth; tied weights have both names.
            names = set(tensors)
            if tied:
                names |= {key.replace("lm_head.weight", "llama.embed_tokens.weight") for key in tensors}
            expected = {key: truth[true_name(section, key, masters_as_model)] for key in names}
            self.assert_same_tensors(found[section], expected, dtypes_alike=SIXTEEN_BITS)
            self.assert_well_indexed(target, section)

    def test_one_process_tied(self):
        self.check("n-1-O0", "nlp-B.safetensors", {"model": 12, "master_weights": 12, "optimizer": 48}, tied=True)

    def test_data_parallel(self):
        self.check("n-dp2-O0", "nlp-A.safetensors", {"model": 12, "master_weights": 12, "optimizer": 48})

    def test_masters_under_the_names_of_the_model(self):
        self.check("n-dp2-O0-skip", "nlp-A.safetensors", {"model": 12, "optimizer": 48}, masters_as_model=True)

    def test_data_parallel_tied(self):
        self.check("n-dp2-tied-O0", "nlp-B.safetensors", {"model": 12, "master_weights": 12, "optimizer": 48})

    def test_tensor_parallel_fused(self):
        self.check("n-fused-tp2-O0", "nlp-G.safetensors", {"model": 9, "master_weights": 9, "optimizer": 36})

    def test_lora(self):
        self.check("n-lora-dp2-O0", "nlp-L.safetensors", {"adapter_model": 12, "master_weights": 12, "optimizer": 48})

    def test_sharded_optimizer(self):
        self.check("n-sh2v2-O0", "nlp-A.safetensors", {"model": 12, "master_weights": 12, "optimizer": 48})


if __name__ == "__main__":
    support.main()
