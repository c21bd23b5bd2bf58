"""transformers opens a model directory after `cairn convert` and computes the same results."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import support


class Transformers(support.TestCase):
    def check(self, tied, ranks):
        torch.manual_seed(7)
        config = LlamaConfig(vocab_size=131, hidden_size=48, intermediate_size=92, num_hidden_layers=3,
                             num_attention_heads=6, num_key_value_heads=2, tie_word_embeddings=tied)
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
        source, target = support.fresh("source"), support.fresh("target")
        model.save_pretrained(source)
        support.cairn("convert", source, target, "--to", "hf", "--max-file-size", "30KB", ranks=ranks)
        self.assertGreater(len(support.data_files(target)), 2)
        self.assert_well_indexed(target)
        self.assert_same_tensors(support.read_sections(target)["model"], support.read_sections(source)["model"])
        # Not compared with the model in memory: .to(bfloat16) rounded its rotary buffers too, which no file holds.
        before, after = (AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval() for path in (source, target))
        tokens = torch.randint(0, 131, (2, 17))
        with torch.no_grad():
            expected, found = before(tokens).logits, after(tokens).logits
        self.assertTrue(torch.isfinite(expected).all() and expected.numel() == 2 * 17 * 131)
        self.assertTrue(torch.equal(expected, found))

    def test_untied(self):
        self.check(tied=False, ranks=3)

    def test_tied(self):
        self.check(tied=True, ranks=4)


if __name__ == "__main__":
    support.main()
