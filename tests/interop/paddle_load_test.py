"""Every directory that PaddlePaddle wrote (tests/data/paddle/README.md), loaded in other layouts on several ranks,
has the saved state: weights, master weights, moments and accumulators.

paddle_support.py reads the truth and computes the results of Paddle's codecs. Moments that ranks coded are coded here
rank by rank, with the cuts in the table of directories."""

import collections
import json
import math
import pickle
import shutil

import numpy

import paddle_support
import support
from paddle_support import safetensors_of

PADDLE = support.DATA / "paddle"
LINKS = json.loads((PADDLE / "links.json").read_text())
# How a directory holds its state. `codec`: O1 or O2. `by`: moments were coded by ranks that held slices of them:
# "tp" by two tensor-parallel ranks, "flat" by the ranks that the files name.
Sample = collections.namedtuple("Sample", "truth codec by sections", defaults=(None, None, None))
ALL = ("model", "optimizer", "master_weights")
WITHOUT_MASTERS = ("model", "optimizer")
ADAPTER = ("adapter", "optimizer", "master_weights")
SAMPLES = {
    "f-dp2-O0-rm": Sample("f-A", sections=WITHOUT_MASTERS),
    "f-dp2-O1": Sample("f-A", "O1"),
    "f-dp2-hf-O0": Sample("f-A"),
    "f-legacy-dp2": Sample("f-S", sections=("model",)),
    "f-sh2v2-O1-nomerge": Sample("f-A", "O1", "flat"),
    "n-1-O0": Sample("nlp-B"),
    "n-async-O1": Sample("nlp-A", "O1"),
    "n-dp2-O0": Sample("nlp-A"),
    "n-dp2-O0-skip": Sample("nlp-A", sections=("masters as model", "optimizer")),
    "n-dp2-O1": Sample("nlp-A", "O1"),
    "n-dp2-O1-rm": Sample("nlp-A", "O1", sections=WITHOUT_MASTERS),
    "n-dp2-O2": Sample("nlp-A", "O2"),
    "n-dp2-O2-rm": Sample("nlp-A", "O2", sections=WITHOUT_MASTERS),
    "n-dp2-tied-O0": Sample("nlp-B"),
    "n-fused-tp2-O0": Sample("nlp-G"),
    "n-fused-tp2-O1": Sample("nlp-G", "O1"),
    "n-legacy-dp2": Sample("nlp-A"),
    "n-legacy-f32-tp2": Sample("nlp-F", sections=WITHOUT_MASTERS),
    "n-legacy-f32norm-tp2": Sample("nlp-N"),
    "n-legacy-fused-tp2": Sample("nlp-U"),
    "n-legacy-lora-tp2": Sample("nlp-M", sections=ADAPTER),
    "n-legacy-one": Sample("nlp-S"),
    "n-legacy-pp2-tied": Sample("nlp-P"),
    "n-legacy-sh2": Sample("nlp-S"),
    "n-legacy-sh2v2": Sample("nlp-S"),
    "n-legacy-tied-tp2": Sample("nlp-T"),
    "n-legacy-tp2": Sample("nlp-S"),
    "n-legacy-tp2-odd": Sample("nlp-R"),
    "n-lora-dp2-O0": Sample("nlp-L", sections=ADAPTER),
    "n-lora-dp2-O1": Sample("nlp-L", "O1", sections=ADAPTER),
    "n-pp2-O1": Sample("nlp-A", "O1"),
    "n-sh2-O1-nomerge": Sample("nlp-A", "O1"),
    "n-sh2v2-O0": Sample("nlp-A"),
    "n-tp2-O1": Sample("nlp-A", "O1"),
    "n-tp2-O1-nomerge": Sample("nlp-A", "O1", "tp"),
    "n-tp2-O2": Sample("nlp-A", "O2"),
}
# Dimension along which tensor-parallel ranks cut the weights of PaddleNLP's Llama; every rank has the other weights.
TP_DIMENSION = {"embed_tokens": 0, "o_proj": 0, "down_proj": 0, "q_proj": 1, "k_proj": 1, "v_proj": 1, "gate_proj": 1,
                "up_proj": 1, "lm_head": 1}


def sample_directory(name):
    """A copy with the files that other directories have as well."""
    place = support.fresh(name)
    shutil.copytree(PADDLE / name, place)
    for link, target in LINKS.items():
        if link.startswith(name + "/"):
            shutil.copy(PADDLE / target, place.parent / link)
    return place


def slices_of(sample, directory, parameter, shape):
    """Lists of indices of the flattened tensor, one list for each slice that was coded separately."""
    everything = numpy.arange(math.prod(shape)).reshape(shape)
    module = parameter.split(".")[-2]
    if sample.by == "tp" and module in TP_DIMENSION:
        return [part.reshape(-1) if part.ndim == 1 else part for part in
                numpy.split(everything, 2, axis=TP_DIMENSION[module])]
    if sample.by != "flat":
        return [everything]
    flat, pieces = everything.reshape(-1), []
    for file in sorted(directory.glob("optimizer.shard*.safetensors")):
        found = safetensors_of(file).get(f"{parameter}/moment2_0")
        if found is not None:
            pieces.append(flat[:found[1].size])
            padding = found[1].size - pieces[-1].size
            pieces[-1] = numpy.concatenate([pieces[-1], numpy.full(padding, -1)])
            flat = flat[found[1].size:]
    assert flat.size == 0, parameter
    return pieces


def expected_state(name, directory):
    """{(section, name): (dtype, array)}: the whole saved state."""
    sample = SAMPLES[name]
    truth = safetensors_of(PADDLE / "truth" / f"{sample.truth}.safetensors")
    sections = sample.sections or ALL
    state = {}
    for key, (dtype, values) in truth.items():
        kind, _, parameter = key.partition("/")
        if kind == "model":
            if "model" in sections or "adapter" in sections:
                state[sections[0], parameter] = (dtype, values)
        elif kind == "master":
            if "masters as model" in sections:
                state["model", parameter] = (dtype, values)
            if "master_weights" in sections:
                state["master_weights", parameter] = (dtype, values)
        elif "optimizer" in sections:
            state["optimizer", f"{parameter}/{kind}"] = (dtype, values)
    if sample.codec:
        for key in [key for key in truth if key.startswith("moment1_0/")]:
            parameter = key.partition("/")[2]
            names = [("optimizer", f"{parameter}/{moment}") for moment in ("moment1_0", "moment2_0")]
            m, v = paddle_support.coded(sample.codec, slices_of(sample, directory, parameter, state[names[0]][1].shape),
                                        *(state[moment][1] for moment in names))
            state[names[0]], state[names[1]] = ("F32", m), ("F32", v)
    return state


def of_model_file(name, state):
    """`save_to_hf` writes the weights of linear layers, and only those, transposed."""
    if "-hf-" not in name:
        return state
    return {key: (dtype, values.T if key[0] == "model" and key[1].endswith("_proj.weight") else values)
            for key, (dtype, values) in state.items()}


class PaddleLoad(paddle_support.LoadCase):
    def test_all_directories(self):
        cases = []
        for name in SAMPLES:
            directory = sample_directory(name)
            cases.append((name, directory, of_model_file(name, expected_state(name, directory))))
        self.check_all_loads(cases)

    def test_what_is_told(self):
        if self.ranks > 1:
            return  # inspect runs on one process
        for name in SAMPLES:
            directory = sample_directory(name)
            if not any((directory / f"trainer_state.{kind}").exists() for kind in ("json", "bin")):
                continue
            about = json.loads(support.cairn("inspect", directory, "--json"))["about"]
            self.assertEqual(about["step"], 3, name)
            self.assertEqual(about["version"], "PaddleNLP 3.0.0b4" if name.startswith("n-") else "PaddleFormers 1.2.0")
            self.assertEqual(json.loads(about["values"]["trainer_state"])["global_step"], 3, name)
            schedule = pickle.loads((directory / "scheduler.pdparams").read_bytes())
            self.assertEqual(json.loads(about["values"]["scheduler"]), schedule, name)

    def test_converted(self):
        cases = []
        for name in ("n-1-O0", "n-tp2-O1-nomerge", "f-sh2v2-O1-nomerge"):
            directory, converted = sample_directory(name), support.fresh(name + "-converted")
            support.cairn("convert", directory, converted, "--keep-names", ranks=self.ranks)
            cases.append((name + ", converted", converted, expected_state(name, directory)))
        self.check_all_loads(cases)


if __name__ == "__main__":
    support.main()
