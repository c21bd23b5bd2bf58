"""State that ranks of PaddlePaddle stored without merging, in layouts for which there is no sample:
loads in other layouts get the state that was cut.

The directories are made here, as PaddleNLP (names by rank, and legacy pickles, which have the weights by rank as well)
and PaddleFormers (flat slices of sharding v2, in files by rank and in merged ones) make them; moments are coded slice
by slice."""

import collections
import itertools
import json
import math
import pickle

import numpy

import paddle_support
import support

PAIR = ("moment1_0", "moment2_0")
ACCUMULATORS = {"beta1_pow_acc_0": 0.729, "beta2_pow_acc_0": 0.997}
# Parameter: shape, the dimension that tensor-parallel ranks cut, its pipeline stage of 2,
# and the number of weights fused side by side, of each of which a rank has its columns.
Weight = collections.namedtuple("Weight", "shape dimension stage fused expert", defaults=(1, None))
LAYER = "llama.layers.0."
WEIGHTS = {
    "llama.embed_tokens.weight": Weight((128, 64), 0, 0),
    LAYER + "self_attn.qkv_proj.weight": Weight((64, 128), 1, 0),
    LAYER + "self_attn.q_proj.bias": Weight((64,), 0, 0),
    LAYER + "self_attn.o_proj.weight": Weight((64, 96), 0, 0),
    LAYER + "mlp.gate_up_fused_proj.weight": Weight((64, 320), 1, 1, 2),
    LAYER + "mlp.gate_up_fused_proj.bias": Weight((320,), 0, 1, 2),
    LAYER + "mlp.down_proj.weight": Weight((192, 64), 0, 1),
    LAYER + "input_layernorm.weight": Weight((64,), None, 1),
    "lm_head.weight": Weight((64, 160), 1, 1),
}
# Query, key and value of 4, 2 and 2 heads, and what ERNIE calls gate and up.
ERNIE = {
    "ernie.layers.0.self_attn.qkv_proj.weight": Weight((64, 128), 1, 0, [64, 96]),
    "ernie.layers.0.self_attn.qkv_proj.bias": Weight((128,), 0, 0, [64, 96]),
    "ernie.layers.0.mlp.up_gate_proj.weight": Weight((64, 320), 1, 1, 2),
    "ernie.layers.0.input_layernorm.weight": Weight((64,), None, 1),
}
ERNIE_CONFIG = {"model_type": "ernie4_5_moe", "num_attention_heads": 4, "num_key_value_heads": 2}
ROUTERS = {
    "model.layers.1.mlp.gate.weight": Weight((8, 64), None, 0),
    "model.layers.1.mlp.shared_experts.up_proj.weight": Weight((64, 96), 1, 0),
    "lm_head.weight": Weight((160, 64), None, 0),
}
EXPERTS = {f"{LAYER}mlp.experts.{i}.up_proj.weight": Weight((64, 32), 1, 1, 1, i // 2) for i in range(4)}


def made_state(weights, masters=True):
    """{(section, name): (dtype, array)} before anything is coded."""
    random = numpy.random.default_rng(20261124)
    state = {}
    for name, weight in weights.items():
        if masters:
            state["master_weights", name] = ("F32", random.standard_normal(weight.shape, "f4"))
            bits = state["master_weights", name][1].view("u4")
            state["model", name] = ("U16", ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("u2"))
        else:
            state["model", name] = ("U16", random.integers(0, 0x7f00, weight.shape, "u2"))
        m = random.standard_normal(weight.shape, "f4")
        state["optimizer", f"{name}/moment1_0"] = ("F32", m * numpy.float32(1e-3))
        state["optimizer", f"{name}/moment2_0"] = ("F32", numpy.square(random.standard_normal(weight.shape, "f4")) * m * m)
        for accumulator, value in ACCUMULATORS.items():
            state["optimizer", f"{name}/{accumulator}"] = ("F32", numpy.full(1, value, "f4"))
    return state


class Layout:
    """The elements of a parameter that the rank (tp, pp, shard, moe) holds, as positions in the flattened parameter."""

    def __init__(self, tp=1, pp=1, shard=1, moe=1, flat=False):
        self.degrees = {"tp": tp, "pp": pp, "shard": shard, "moe": moe}
        self.flat = flat

    def ranks(self):
        return itertools.product(*(range(degree) for degree in self.degrees.values()))

    def suffix(self, rank, of_weights=False):
        parts = [f"{axis}{r:02}" for (axis, degree), r in zip(self.degrees.items(), rank)
                 if degree > 1 and not (of_weights and axis == "shard")]
        return "." + "_".join(parts) if parts else ""

    def tensor_slice(self, weight, tp):
        everything = numpy.arange(math.prod(weight.shape)).reshape(weight.shape)
        if weight.dimension is None:
            return everything
        side_by_side = numpy.split(everything, weight.fused, axis=weight.dimension)
        mine = [numpy.split(part, self.degrees["tp"], axis=weight.dimension)[tp] for part in side_by_side]
        return numpy.concatenate(mine, axis=weight.dimension)

    def held_weights(self, weights, rank):
        """As held(), for the weights themselves: sharding does not cut them, and all ranks of experts have
        those of no expert."""
        tp, pp, _, moe = rank
        return {name: self.tensor_slice(weight, tp) for name, weight in weights.items()
                if (self.degrees["pp"] == 1 or weight.stage == pp) and weight.expert in (None, moe)}

    def held(self, weights, rank):
        """{parameter: array of positions}, in the rank's shape."""
        tp, pp, shard, moe = rank
        mine = {name: weight for name, weight in weights.items()
                if (self.degrees["pp"] == 1 or weight.stage == pp) and (weight.expert or 0) == moe}
        places_of = {name: self.tensor_slice(weight, tp) for name, weight in mine.items()}
        if not self.flat:
            return {name: places_of[name] for i, name in enumerate(mine)
                    if i % self.degrees["shard"] == shard}
        # One buffer: each parameter is padded with zeros to a multiple of 256 bytes per rank,
        # and the buffer is cut into equal ranges.
        unit = 128 * self.degrees["shard"]
        buffer, begin = {}, 0
        for name, held in places_of.items():
            places = numpy.full(-(-held.size // unit) * unit, -1)
            places[:held.size] = held.reshape(-1)
            buffer[name] = (begin, places)
            begin += places.size
        share = begin // self.degrees["shard"]
        held = {}
        for name, (begin, places) in buffer.items():
            part = places[max(shard * share - begin, 0):max((shard + 1) * share - begin, 0)]
            if part.size:
                held[name] = part
        return held


def write_by_rank(directory, layout, weights, state, codec, merged=False):
    """The files, and a weight map of each set."""
    maps = {"optimizer": {}, "master_weights": {}}
    ranks = list(layout.ranks())
    for number, rank in enumerate(ranks):
        suffix = f"-{number + 1:05}-of-{len(ranks):05}" if merged else layout.suffix(rank)
        files = {"optimizer": {}, "master_weights": {}}
        for name, places in layout.held(weights, rank).items():
            m, v = (paddle_support.cut_out(state["optimizer", f"{name}/{moment}"][1], places) for moment in PAIR)
            dtypes = {"int8": "I8", "uint8": "U8", "float32": "F32"}
            for part, values in paddle_support.CODES[codec](m, v).items():
                files["optimizer"][name + part] = (dtypes[str(values.dtype)], values)
            for accumulator in ACCUMULATORS:
                files["optimizer"][f"{name}/{accumulator}"] = state["optimizer", f"{name}/{accumulator}"]
            if ("master_weights", name) in state:
                master = paddle_support.cut_out(state["master_weights", name][1], places)
                files["master_weights"][name] = ("F32", master)
        for section, tensors in files.items():
            if section == "master_weights" and not any(key[0] == section for key in state):
                continue
            paddle_support.write_safetensors(directory / f"{section}{suffix}.safetensors", tensors)
            names = [name.partition("@")[0] for name in tensors]
            maps[section].update({name: f"{section}{suffix}.safetensors" for name in names})
    return maps


def write_directory(name, layout, weights, state, codec, merged=False, form="np", config=None):
    directory = support.fresh(name)
    directory.mkdir()
    model = {key[1]: tensor for key, tensor in state.items() if key[0] == "model"}
    paddle_support.write_safetensors(directory / "model-00001-of-00001.safetensors", model, form)
    index = {"metadata": {}, "weight_map": {key: "model-00001-of-00001.safetensors" for key in model}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", "tie_word_embeddings": False} | (config or {})))
    maps = write_by_rank(directory, layout, weights, state, codec, merged)
    optimizer = {"quant_ckpt_resume_times": 0}
    if codec:
        optimizer["ckpt_quant_stage"] = codec
    if merged:
        optimizer |= {"metadata": {}, "weight_map": maps["optimizer"], "master_weights": True}
        masters = {"metadata": {}, "weight_map": maps["master_weights"]}
        (directory / "master_weights.safetensors.index.json").write_text(json.dumps(masters))
    (directory / "optimizer.safetensors.index.json").write_text(json.dumps(optimizer))
    return directory


class PaddleTensor:
    """A tensor as paddle.save pickles it."""

    def __init__(self, name, values):
        self.parts = (name, numpy.ascontiguousarray(values))

    def __reduce__(self):
        return tuple, (self.parts,)


def write_legacy(name, layout, weights, state, config):
    """As with unified_checkpoint off: pickles of every rank. A process numbers its parameters,
    so that ranks of two pipeline stages use the same names for different parameters."""
    directory = support.fresh(name)
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    masters = any(section == "master_weights" for section, _ in state)
    for rank in layout.ranks():
        tp, pp, shard, moe = rank
        held = layout.held_weights(weights, rank)
        static = {key: f"linear_{i}.w_{i % 2}" for i, key in enumerate(held)}
        if shard == 0:
            model = {key: paddle_support.cut_out(state["model", key][1], places) for key, places in held.items()}
            model["StructuredToParameterName@@"] = static
            file = directory / f"model_state{layout.suffix((tp, pp, 0, moe), of_weights=True)}.pdparams"
            file.write_bytes(pickle.dumps(model, protocol=4))
        optimizer = {}
        for key, places in layout.held(weights, rank).items():
            full = static[key] + ("_fp32_master_0" if masters else "")
            for moment in PAIR:
                values = paddle_support.cut_out(state["optimizer", f"{key}/{moment}"][1], places)
                optimizer[f"{full}_{moment}"] = PaddleTensor(f"{full}_{moment}", values)
            for accumulator in ACCUMULATORS:
                optimizer[f"{full}_{accumulator}"] = state["optimizer", f"{key}/{accumulator}"][1]
            if masters:
                values = paddle_support.cut_out(state["master_weights", key][1], places)
                optimizer.setdefault("master_weights", {})[static[key]] = PaddleTensor(full, values)
        optimizer["LR_Scheduler"] = {"last_epoch": 3, "last_lr": 0.001}
        (directory / f"optimizer{layout.suffix(rank)}.pdopt").write_bytes(pickle.dumps(optimizer, protocol=4))
    return directory


def as_coded(layout, weights, state, codec):
    """The state after coding and decoding every rank's moments."""
    out = dict(state)
    for name in weights:
        names = [("optimizer", f"{name}/{moment}") for moment in PAIR]
        held = [layout.held(weights, rank) for rank in layout.ranks()]
        slices = [places[name] for places in held if name in places]
        moments = paddle_support.coded(codec, slices, *(state[key][1] for key in names))
        out.update({key: ("F32", values) for key, values in zip(names, moments)})
    return out


class PaddleByRank(paddle_support.LoadCase):
    def check(self, name, layout, codec, weights=None, masters=True, **how):
        weights = weights or WEIGHTS
        state = made_state(weights, masters)
        directory = write_directory(name, layout, weights, state, codec, **how)
        self.check_loads(name, directory, as_coded(layout, weights, state, codec))

    def test_legacy(self):
        cases = []

        def add(name, layout, weights=WEIGHTS, masters=True, family="llama"):
            state = made_state(weights, masters)
            cases.append((name, write_legacy(name, layout, weights, state, {"model_type": family}), state))

        add("legacy-dp-without-masters", Layout(), masters=False)
        add("legacy-tp4", Layout(tp=4))
        add("legacy-tp2-unknown-family", Layout(tp=2), family="unheard_of")
        add("legacy-tp2-pp2-shard3", Layout(tp=2, pp=2, shard=3))
        add("legacy-tp2-moe2", Layout(tp=2, moe=2), WEIGHTS | EXPERTS)
        add("legacy-pp2-flat3", Layout(pp=2, shard=3, flat=True))
        add("legacy-tp2-flat2", Layout(tp=2, shard=2, flat=True))
        add("legacy-tp4-pp2-flat3", Layout(tp=4, pp=2, shard=3, flat=True))
        self.check_all_loads(cases)

    def test_tensor_parallel(self):
        for degree, codec in ((2, None), (2, "O1"), (2, "O2"), (4, "O1")):
            self.check(f"tp{degree}-{codec}", Layout(tp=degree), codec)

    def test_all_parallelisms(self):
        self.check("tp2-pp2-shard3-O1", Layout(tp=2, pp=2, shard=3), "O1")
        self.check("tp2-pp2-O2", Layout(tp=2, pp=2), "O2")
        self.check("pp2-shard2-O0", Layout(pp=2, shard=2), None)

    def test_data_parallel_alone(self):
        self.check("dp-O1", Layout(), "O1")
        self.check("dp-O0-without-masters", Layout(), None, masters=False)

    def test_experts(self):
        self.check("tp2-moe2-O1", Layout(tp=2, moe=2), "O1", WEIGHTS | EXPERTS)

    def test_flat_slices(self):
        for degree, codec in ((2, None), (2, "O1"), (3, "O1"), (5, None)):
            self.check(f"flat{degree}-{codec}", Layout(shard=degree, flat=True), codec)
        self.check("pp2-flat3-O1", Layout(pp=2, shard=3, flat=True), "O1")

    def test_flat_slices_of_stacked_experts(self):
        weights = WEIGHTS | {LAYER + "mlp.experts.up_proj": Weight((3, 20, 7), None, 1)}
        self.check("flat3-stacked-O1", Layout(shard=3, flat=True), "O1", weights)

    def test_flat_slices_in_merged_files(self):
        for degree, codec in ((2, None), (3, "O1"), (4, None)):
            self.check(f"merged-flat{degree}-{codec}", Layout(shard=degree, flat=True), codec, merged=True)

    def test_flat_slices_beside_weights_for_hugging_face(self):
        weights = {name: weight for name, weight in WEIGHTS.items() if "lm_head" not in name}
        state = made_state(weights)
        turned = {key: (dtype, numpy.ascontiguousarray(values.T)) if key[0] == "model" and key[1].endswith(("o_proj.weight", "down_proj.weight"))
                  else (dtype, values) for key, (dtype, values) in state.items()}
        layout = Layout(shard=2, flat=True)
        directory = write_directory("flat2-hf-O1", layout, weights, turned, "O1", form="pt")
        self.check_loads("flat2-hf-O1", directory, as_coded(layout, weights, turned, "O1"))

    def test_flat_slices_of_routers_beside_weights_for_hugging_face(self):
        for family, turned in (("glm4_moe", ["up_proj"]), ("qwen3_moe", ["up_proj", "gate"]), ("gemma3", ["up_proj", "lm_head"])):
            state = made_state(ROUTERS)
            stored = {key: (dtype, numpy.ascontiguousarray(values.T)) if key[0] == "model" and key[1].split(".")[-2] in turned
                      else (dtype, values) for key, (dtype, values) in state.items()}
            layout = Layout(shard=2, flat=True)
            directory = write_directory(f"flat2-{family}", layout, ROUTERS, stored, None, form="pt", config={"model_type": family})
            self.check_loads(f"flat2-{family}", directory, stored)

    def test_query_key_and_value_by_heads(self):
        for layout, codec in ((Layout(tp=2), None), (Layout(tp=2), "O1"), (Layout(tp=2, shard=2), None)):
            name = f"ernie-{layout.degrees['tp']}-{layout.degrees['shard']}-{codec}"
            self.check(name, layout, codec, ERNIE, config=ERNIE_CONFIG)
        state = made_state(ERNIE)
        directory = write_directory("ernie-without", Layout(tp=2), ERNIE, state, None, config={"model_type": "ernie4_5"})
        with self.assertRaisesRegex(AssertionError, "config.json does not say num_attention_heads"):
            support.cairn("inspect", directory)


if __name__ == "__main__":
    support.main()
