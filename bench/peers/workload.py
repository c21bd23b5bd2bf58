"""The workload of all systems: the training state of a Llama, and the part of it that each rank holds.

Weights are BF16; master weights and two Adam moments are F32: 14 bytes per parameter. Names, values and shards are
those of `cairn demo` (src/bench/demo_state.hpp, src/shard), implemented a second time here, so that a difference
between the two shows as different bytes.
"""

import dataclasses
import math

BYTES_PER_PARAMETER = 14
SMALLEST_SIZE = 4 << 20
COLUMN_PARALLEL = ("embed_tokens.weight", "lm_head.weight", "q_proj.weight", "k_proj.weight", "v_proj.weight",
                   "gate_proj.weight", "up_proj.weight")  # cut on dimension 0
ROW_PARALLEL = ("o_proj.weight", "down_proj.weight")  # cut on dimension 1


@dataclasses.dataclass(frozen=True)
class Tensor:
    section: str
    name: str
    dtype: str  # "BF16" or "F32"
    shape: tuple
    parameter: str

    @property
    def key(self):
        """Its name where all sections share one namespace."""
        return f"{self.section}.{self.name}"

    @property
    def element_bytes(self):
        return 2 if self.dtype == "BF16" else 4

    @property
    def size_bytes(self):
        return math.prod(self.shape) * self.element_bytes


@dataclasses.dataclass(frozen=True)
class Box:
    offset: tuple
    shape: tuple


def config_of_size(size_bytes):
    """config.json of a Llama whose training state has about `size_bytes`: a quarter of it embeddings, at least 8 layers
    if the size allows it."""
    parameters = size_bytes / BYTES_PER_PARAMETER
    for hidden in (8192, 4096, 2048, 1024, 512, 256, 128, 64):
        feed_forward = hidden * 11 // 4
        per_layer = 4 * hidden * hidden + 3 * hidden * feed_forward + 2 * hidden
        layers = int(0.75 * parameters / per_layer) // 2 * 2
        if layers >= 8 or hidden == 64:
            break
    layers = max(layers, 2)
    vocabulary = round((parameters - layers * per_layer) / (2 * hidden) / 64) * 64
    return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden,
            "num_hidden_layers": layers, "num_attention_heads": max(4, hidden // 64),
            "num_key_value_heads": max(4, hidden // 64), "intermediate_size": feed_forward,
            "vocab_size": max(vocabulary, 64), "tie_word_embeddings": False, "torch_dtype": "bfloat16",
            "rms_norm_eps": 1e-5, "max_position_embeddings": 2048}


def parameters_of(config):
    """[(name, shape)] of the weights."""
    hidden, feed_forward = config["hidden_size"], config["intermediate_size"]
    out = [("model.embed_tokens.weight", (config["vocab_size"], hidden))]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        out += [(f"{prefix}self_attn.{name}_proj.weight", (hidden, hidden)) for name in "qkvo"]
        out += [(f"{prefix}mlp.gate_proj.weight", (feed_forward, hidden)),
                (f"{prefix}mlp.up_proj.weight", (feed_forward, hidden)),
                (f"{prefix}mlp.down_proj.weight", (hidden, feed_forward)),
                (f"{prefix}input_layernorm.weight", (hidden,)),
                (f"{prefix}post_attention_layernorm.weight", (hidden,))]
    return out + [("model.norm.weight", (hidden,)), ("lm_head.weight", (config["vocab_size"], hidden))]


def tensors_of(config):
    parameters = parameters_of(config)
    out = [Tensor("model", name, "BF16", shape, name) for name, shape in parameters]
    out += [Tensor("master_weights", name, "F32", shape, name) for name, shape in parameters]
    for moment in (1, 2):
        out += [Tensor("optimizer", f"{name}/moment{moment}_0", "F32", shape, name) for name, shape in parameters]
    return out


def total_bytes(tensors):
    return sum(tensor.size_bytes for tensor in tensors)


def files_of(tensors, max_file_bytes):
    """{key: number of its file, from 1}: section after section, each cut where a file would become too large."""
    out, number = {}, 0
    for section in ("model", "master_weights", "optimizer"):
        filled = max_file_bytes
        for tensor in tensors:
            if tensor.section != section:
                continue
            if filled + tensor.size_bytes > max_file_bytes:
                number, filled = number + 1, 0
            filled += tensor.size_bytes
            out[tensor.key] = number
    return out


@dataclasses.dataclass(frozen=True)
class Layout:
    """`fsdp=N`, or `tp=T,pp=P` with rank = pp * T + tp."""
    text: str
    fsdp: int = 0
    tp: int = 1
    pp: int = 1

    @classmethod
    def parse(cls, text):
        return cls(text, **{key: int(value) for key, value in (word.split("=") for word in text.split(","))})

    @property
    def ranks(self):
        return self.fsdp or self.tp * self.pp

    def cut_dimension(self, tensor):
        """The dimension that is cut over fsdp or tp; None for a replicated tensor."""
        if self.fsdp or tensor.parameter.endswith(COLUMN_PARALLEL):
            return 0
        return 1 if tensor.parameter.endswith(ROW_PARALLEL) else None

    def stage_of(self, tensor, layers):
        """Pipeline stage: layers in equal runs, the embedding first, norm and head last."""
        if self.fsdp or "embed_tokens" in tensor.parameter:
            return 0
        if ".layers." not in tensor.parameter:
            return self.pp - 1
        return int(tensor.parameter.split(".")[2]) * self.pp // layers

    def box_of(self, tensor, rank, layers):
        """The box that the rank holds, or None. By torch.chunk's rule: pieces of ceil(n / parts)."""
        if not self.fsdp and self.stage_of(tensor, layers) != rank // self.tp:
            return None
        dimension = self.cut_dimension(tensor)
        offset, shape = [0] * len(tensor.shape), list(tensor.shape)
        if dimension is not None:
            parts, part = (self.fsdp, rank) if self.fsdp else (self.tp, rank % self.tp)
            size = -(-tensor.shape[dimension] // parts)
            offset[dimension] = min(part * size, tensor.shape[dimension])
            shape[dimension] = min(size, tensor.shape[dimension] - offset[dimension])
        return Box(tuple(offset), tuple(shape))
