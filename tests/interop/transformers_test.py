"""transformers opens a model directory after `cairn convert` and computes the same results."""

import torch
from safetensors.torch import load_file as torch_file
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
        sharded, back = support.fresh("shards"), support.fresh("back")
        support.cairn("convert", source, sharded, "--to", "shards", "--layout", "fsdp=2,uneven", ranks=ranks)
        support.cairn("convert", sharded, back, ranks=ranks)
        wide = support.fresh("wide")
        support.cairn("convert", source, wide, "--dtype", "F32", ranks=ranks)
        # Not compared with the model in memory: .to(bfloat16) rounded its rotary buffers too, which no file holds.
        before, after = (AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval() for path in (source, target))
        tokens = torch.randint(0, 131, (2, 17))
        with torch.no_grad():
            expected, found = before(tokens).logits, after(tokens).logits
        self.assertTrue(torch.isfinite(expected).all() and expected.numel() == 2 * 17 * 131)
        self.assertTrue(torch.equal(expected, found))
        self.assertTrue(torch.equal(expected, self.logits(back, tokens, torch.bfloat16)))
        self.assertTrue(torch.equal(self.logits(source, tokens, torch.float32), self.logits(wide, tokens, torch.float32)))

    def logits(self, path, tokens, dtype):
        model, told = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, output_loading_info=True)
        self.assertFalse(any(told.values()), told)
        with torch.no_grad():
            return model.eval()(tokens).logits

    def check_paddle(self, name, truth_file):
        """A directory of PaddlePaddle has the names and orders that transformers expects, and Paddle's values."""
        source, target = support.DATA / "paddle" / name, support.fresh(name)
        support.cairn("convert", source, target, ranks=2)
        model, told = AutoModelForCausalLM.from_pretrained(target, dtype=torch.bfloat16, output_loading_info=True)
        self.assertFalse(any(told.values()), told)
        truth = {key.partition("/")[2].replace("llama.", "model."): value
                 for key, value in torch_file(support.DATA / "paddle/truth" / truth_file).items() if key.startswith("model/")}
        made = LlamaForCausalLM(LlamaConfig.from_pretrained(source)).to(torch.bfloat16)
        with torch.no_grad():
            for key, weight in made.named_parameters():  # Paddle's linear weights are [in, out]
                is_turned = key.endswith("_proj.weight") or (key == "lm_head.weight" and truth[key].shape[0] == weight.shape[1])
                weight.copy_(truth[key].T if is_turned else truth[key])
        saved = support.fresh("made")
        made.save_pretrained(saved)  # and read again, as in check()
        expected = AutoModelForCausalLM.from_pretrained(saved, dtype=torch.bfloat16)
        tokens = torch.randint(0, model.config.vocab_size, (2, 17))
        with torch.no_grad():
            self.assertTrue(torch.equal(expected.eval()(tokens).logits, model.eval()(tokens).logits))

    def test_paddle(self):
        self.check_paddle("n-dp2-O0", "nlp-A.safetensors")

    def test_paddle_of_ranks(self):
        for name, truth in (("n-tp2-O1", "nlp-A"), ("n-pp2-O1", "nlp-A"), ("n-sh2v2-O0", "nlp-A"), ("n-dp2-O0-skip", "nlp-A"),
                            ("n-legacy-tp2", "nlp-S"), ("n-legacy-sh2v2", "nlp-S"), ("n-legacy-pp2-tied", "nlp-P")):
            with self.subTest(name=name):
                self.check_paddle(name, f"{truth}.safetensors")

    def test_paddle_tied(self):
        self.check_paddle("n-dp2-tied-O0", "nlp-B.safetensors")

    def test_paddle_formers(self):
        self.check_paddle("f-dp2-O1", "f-A.safetensors")

    def test_untied(self):
        self.check(tied=False, ranks=3)

    def test_tied(self):
        self.check(tied=True, ranks=4)


if __name__ == "__main__":
    support.main()
