"""A model directory as huggingface_hub writes it (the shapes of SmolLM2-135M, several files)
goes through `cairn convert`, directly and by way of a sharded checkpoint, on different numbers of ranks:
always with the same bytes, which the official package opens, and the same tensors."""

import shutil

import torch
from huggingface_hub import save_torch_state_dict

import support

LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCAB = 30, 576, 9, 3, 1536, 49152


def smollm2_shapes():
    kv = HIDDEN // HEADS * KV_HEADS
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (HIDDEN,)
        yield f"{prefix}.mlp.down_proj.weight", (HIDDEN, FFN)
        yield f"{prefix}.mlp.gate_proj.weight", (FFN, HIDDEN)
        yield f"{prefix}.mlp.up_proj.weight", (FFN, HIDDEN)
        yield f"{prefix}.post_attention_layernorm.weight", (HIDDEN,)
        yield f"{prefix}.self_attn.k_proj.weight", (kv, HIDDEN)
        yield f"{prefix}.self_attn.o_proj.weight", (HIDDEN, HIDDEN)
        yield f"{prefix}.self_attn.q_proj.weight", (HIDDEN, HIDDEN)
        yield f"{prefix}.self_attn.v_proj.weight", (kv, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)


class HuggingFaceHub(support.TestCase):
    @classmethod
    def setUpClass(cls):
        generator = torch.Generator().manual_seed(135)
        state = {name: torch.randint(-2**15, 2**15, shape, generator=generator, dtype=torch.int16).view(torch.bfloat16)
                 for name, shape in smollm2_shapes()}
        cls.expected = {name: support.in_memory(tensor) for name, tensor in state.items()}
        cls.source = support.fresh("source")
        cls.source.mkdir()
        save_torch_state_dict(state, cls.source, max_shard_size="100MB")
        cls.digests = None

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.source)

    def convert(self, source, name, ranks, *options):
        target = support.fresh(name)
        self.addCleanup(shutil.rmtree, target, ignore_errors=True)
        support.cairn("convert", source, target, *options, ranks=ranks)
        return target

    def test_by_way_of_shards_and_directly(self):
        self.assertGreater(len(support.data_files(self.source)), 2)
        self.assertEqual(sum(len(t.data) for t in self.expected.values()), 2 * 134_515_008)
        shards = self.convert(self.source, "shards", 4, "--layout", "tp=3", "--to", "shards")
        back = self.convert(shards, "back", 4, "--to", "hf", "--max-file-size", "100MB")
        shutil.rmtree(shards)
        self.assert_well_indexed(back)
        self.assert_same_tensors(support.read_sections(back)["model"], self.expected)
        for file in support.data_files(back):
            self.assertLess(file.stat().st_size, 101_000_000, file.name)
        digests = support.digests(back)
        self.assertGreater(len(digests), 2)
        shutil.rmtree(back)
        for ranks in (1, 4, 5):
            with self.subTest(ranks=ranks):
                direct = self.convert(self.source, f"direct-{ranks}", ranks, "--to", "hf", "--max-file-size", "100MB")
                self.assertEqual(support.digests(direct), digests)
                self.assert_well_indexed(direct)
                shutil.rmtree(direct)


if __name__ == "__main__":
    support.main()
