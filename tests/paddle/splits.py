"""Weights that PaddleNLP's own functions cut for tensor-parallel ranks, written as legacy checkpoints,
come out of Cairn whole: for each family of models that Cairn knows, and with a few weights that it must refuse.

  splits.py [--case NAME ...]

CAIRN_BIN_DIR is as in tests/interop; the packages are those of requirements.txt."""

import argparse
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import unittest.mock

# They download models, which nothing here does.
for name in ("aistudio_sdk", "aistudio_sdk.hub", "aistudio_sdk.file_download"):
    sys.modules[name] = unittest.mock.MagicMock(__path__=[], __spec__=None)

# pylint: disable=wrong-import-position
import numpy as np
import paddle
import paddlenlp.transformers
from paddlenlp.transformers.conversion_utils import ConversionMixin

import round_trips

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2,
         "max_position_embeddings": 32}
HEADS = dict(SIZES, num_key_value_heads=4)
ONE_HEAD = dict(SIZES, num_key_value_heads=1)
T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
FUSED = ("fuse_attention_qkv", "fuse_attention_ffn")
# Classes of configuration and model, sizes, and attributes that are true.
CASES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", HEADS),
    "llama-odd": ("LlamaConfig", "LlamaForCausalLM", dict(ONE_HEAD, vocab_size=63)),
    "llama-fused": ("LlamaConfig", "LlamaForCausalLM", HEADS, FUSED),
    "llama-tied": ("LlamaConfig", "LlamaForCausalLM", dict(HEADS, tie_word_embeddings=True)),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", HEADS),
    "qwen2-odd": ("Qwen2Config", "Qwen2ForCausalLM", ONE_HEAD),
    "qwen2-fused": ("Qwen2Config", "Qwen2ForCausalLM", HEADS, FUSED),
    "qwen2_moe": ("Qwen2MoeConfig", "Qwen2MoeForCausalLM",
                  dict(HEADS, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                       shared_expert_intermediate_size=24, decoder_sparse_step=1)),
    "mistral": ("MistralConfig", "MistralForCausalLM", HEADS),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", dict(HEADS, num_local_experts=4)),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", dict(HEADS, head_dim=8)),
    "jamba": ("JambaConfig", "JambaForCausalLM",
              dict(HEADS, num_experts=2, num_experts_per_tok=1, mamba_d_state=4, mamba_dt_rank=4, attn_layer_period=2,
                   attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, use_mamba_kernels=False)),
    "deepseek_v2": ("DeepseekV2Config", "DeepseekV2ForCausalLM",
                    dict(HEADS, moe_intermediate_size=16, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2,
                         q_lora_rank=16, kv_lora_rank=8, qk_rope_head_dim=8, v_head_dim=8, qk_nope_head_dim=8, n_group=1,
                         topk_group=1, first_k_dense_replace=1, moe_layer_freq=1)),
    "qwen": ("QWenConfig", "QWenForCausalLM",
             {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 2,
              "kv_channels": 8, "seq_length": 32}),
    "gpt": ("GPTConfig", "GPTForCausalLM", SIZES),
    "gpt-fused": ("GPTConfig", "GPTForCausalLM", SIZES, FUSED),
    "opt": ("OPTConfig", "OPTForCausalLM", dict(SIZES, word_embed_proj_dim=32)),
    "bloom": ("BloomConfig", "BloomForCausalLM", {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "chatglm": ("ChatGLMConfig", "ChatGLMForCausalLM",
                {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "inner_hidden_size": 64,
                 "max_sequence_length": 32}),
    "t5": ("T5Config", "T5ForConditionalGeneration", T5),
    "t5-gated": ("T5Config", "T5ForConditionalGeneration", dict(T5, feed_forward_proj="gated-gelu")),
}
# A weight whose order only the model's own code knows.
REFUSED = {
    "glm": ("GLMConfig", "GLMForConditionalGeneration",
            {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_layers": 2, "num_attention_heads": 4,
             "max_sequence_length": 32}),
}


def write_ranks(model_class, config, weights, static, ranks, directory):
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    config.tensor_parallel_degree = ranks
    for rank in range(ranks):
        config.tensor_parallel_rank = rank
        actions = model_class._get_tensor_parallel_mappings(config, is_split=True)
        names = ConversionMixin._resolve_prefix_keys(actions.keys(), list(weights), ignore_error=True)
        part = dict(weights, **{names[key]: np.ascontiguousarray(actions[key](weights[names[key]])) for key in names})
        part["StructuredToParameterName@@"] = static
        (directory / f"model_state.tp{rank:02}.pdparams").write_bytes(pickle.dumps(part, protocol=4))
    config.save_pretrained(str(directory))


def run_case(case, work):
    config_class, model_class, sizes, *attributes = (CASES | REFUSED)[case]
    config = getattr(paddlenlp.transformers, config_class)(**sizes)
    for attribute in attributes[0] if attributes else ():
        setattr(config, attribute, True)
    model_class = getattr(paddlenlp.transformers, model_class)
    random, weights, static = np.random.default_rng(1), {}, {}
    of_static = {}  # tied weights are one
    for name, param in model_class(config).state_dict().items():
        static[name] = param.name
        weights[name] = of_static.setdefault(param.name, random.integers(0, 1 << 16, param.shape, "u2"))
    for ranks in (2, 4):
        source, target = work / f"{case}-tp{ranks}", work / "whole"
        write_ranks(model_class, config, weights, static, ranks, source)
        shutil.rmtree(target, ignore_errors=True)
        program = pathlib.Path(os.environ["CAIRN_BIN_DIR"]) / "cairn"
        done = subprocess.run([program, "convert", source, target, "--to", "paddlenlp"], capture_output=True, text=True,
                              check=False)
        if case in REFUSED:
            assert done.returncode == 1 and "an order of the model's own" in done.stderr, done.stderr
            print(f"{case}, {ranks} ranks: refused", flush=True)
            continue
        assert done.returncode == 0, done.stderr
        found = {name: (tuple(shape), data) for (_, name), (_, shape, data) in round_trips.tensors_of(target).items()}
        assert sorted(found) == sorted(weights), sorted(set(found) ^ set(weights))
        different = [name for name, values in weights.items() if found[name] != (values.shape, values.tobytes())]
        assert not different, f"{case}, {ranks} ranks: {different}"
        print(f"{case}, {ranks} ranks: {len(weights)} weights are whole", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=sorted(CASES | REFUSED))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("splits"))
    options = parser.parse_args()
    paddle.set_device("cpu")
    for case in options.case or CASES | REFUSED:
        run_case(case, options.work.resolve())


if __name__ == "__main__":
    main()
