#!/usr/bin/env python3
"""Makes the seeds of the directory fuzzer (tests/fuzz/directory) from the samples in tests/data: a few tensors of each
file, indexes and metadata reduced to these, configurations and small pickles unchanged. directory_entry.cpp describes
the form.

    tests/fuzz/make_directory_seeds.py
"""

import json
import pickletools
import struct
from pathlib import Path

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
MOST_BYTES = 4096
CONFIG_KEYS = ["model_type", "vocab_size", "num_attention_heads", "num_key_value_heads", "tie_word_embeddings",
               "tensor_parallel_degree", "transformers_version", "paddlenlp_version", "paddleformers_version"]
# The same parameters are kept in every file of a sample.
WORDS = ["embed_tokens", "lm_head", "layers.0.self_attn.q_proj", "layers.0.mlp.gate_up_fused_proj", "layers.0.mlp.down_proj",
         "layers.0.input_layernorm", "norm.weight", "lora_A", "scale"]


def header_of(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + length])


def parameter_of(name):
    return name.split("/")[0]


def chosen(names, most):
    """That many parameters: the first one for each of the words."""
    parameters = list(dict.fromkeys(parameter_of(name) for name in names))
    firsts = [next((p for p in parameters if word in p), None) for word in WORDS]
    return set([p for p in firsts if p][:most] or parameters[:most])


def sharding_of(text, kept):
    return json.dumps({name: value for name, value in json.loads(text).items() if name in kept}, separators=(",", ":"))


def data_file(header, kept):
    lines = []
    for key, value in header.get("__metadata__", {}).items():
        if key == "DCP_SHARDING_INFO":
            value = sharding_of(value, kept)
        if "\n" not in value and len(value) < 600:
            lines.append(f"={key} {value}")
    for name in kept:
        shape = ",".join(str(size) for size in header[name]["shape"]) or "-"
        lines.append(f"{name} {header[name]['dtype']} {shape}")
    return "\n".join(lines).encode()


def index_file(path, files):
    index = json.loads(path.read_text())
    if "weight_map" in index:
        index["weight_map"] = {name: file for name, file in index["weight_map"].items() if name in files.get(file, [])}
    return json.dumps(index, separators=(",", ":")).encode()


def small_json(path):
    document = json.loads(path.read_text())
    if path.name == "config.json":
        document = {key: document[key] for key in CONFIG_KEYS if key in document}
    if path.name == "trainer_state.json":
        document = {"global_step": document.get("global_step", 1), "log_history": []}
    return json.dumps(document, separators=(",", ":")).encode()


def is_text(name):
    return name in ("config.json", "trainer_state.json")


def files_of(folder):
    """The files of a folder, with those that several samples share."""
    files = {path.name: path for path in folder.iterdir()}
    links = json.loads((DATA / "paddle/links.json").read_text())
    for name, target in links.items():
        if (DATA / "paddle" / name).parent == folder:
            files.setdefault(Path(name).name, DATA / "paddle" / target)
    return sorted(files.items())


def seed_of(folder, most):
    files = files_of(folder)
    headers = {name.removesuffix(".header"): header_of(path) for name, path in files
               if ".safetensors" in name and not name.endswith(".json")}
    names = {file: [key for key in header if key != "__metadata__"] for file, header in headers.items()}
    parameters = chosen([name for of_file in names.values() for name in of_file], most)
    kept = {file: [name for name in of_file if parameter_of(name) in parameters] for file, of_file in names.items()}
    parts = [(file, data_file(header, kept[file])) for file, header in headers.items()]
    for name, path in files:
        if name.endswith(".index.json"):
            parts.append((name, index_file(path, kept)))
        elif is_text(name):
            parts.append((name, small_json(path)))
        elif path.is_dir():
            parts.append((name + "/", b""))
        elif ".safetensors" not in name and name not in ("expected.json", "generation_config.json"):
            content = path.read_bytes() if path.stat().st_size <= 600 else b""
            parts.append((name, content))
    return b"\n".join(b"#@" + name.encode() + b"\n" + content for name, content in parts)


def folders():
    for parent in ("dialects", "paddle"):
        for folder in sorted((DATA / parent).iterdir()):
            if folder.is_dir() and folder.name != "truth" and not has_large_pickles(folder):
                yield f"{parent}-{folder.name}".replace("dialects-", ""), folder
    for folder in sorted((DATA / "dcp").iterdir()):
        if folder.is_dir():
            yield f"dcp-{folder.name}", folder / "ckpt"


def has_large_pickles(folder):
    """Whether it is a legacy checkpoint of large pickles; the pickle fuzzer has small ones as seeds."""
    return any(path.suffix in (".pdparams", ".pdopt") and path.stat().st_size > 600 for path in folder.iterdir())


CONFIG = b'{"model_type":"llama","vocab_size":4,"num_key_value_heads":1}'
LEGACY = {
    "one": (["model_state.pdparams", "optimizer.pdopt"], []),
    "tp2": (["model_state.tp00.pdparams", "model_state.tp01.pdparams", "optimizer.tp00.pdopt", "optimizer.tp01.pdopt"],
            ["saved_signal_0", "saved_signal_1"]),
    "merged-adapter": (["lora_model_state.pdparams", "optimizer.tp00.pdopt", "optimizer.tp01.pdopt"], []),
    "two-places": (["model_state.pdparams", "2:o:optimizer.shard00.pdopt", "2:optimizer.shard01.pdopt"], []),
}


# Cases without a sample: codes of Cairn's own, sections of boxes, files in two places, parameters without elements.
OWN = {
    "own-codes": [
        ("optimizer.safetensors", b'=cairn.coding/p/moment2_0 {"codec":"paddle-o1","first":"p/moment1_0","second":"p/moment2_0",'
         b'"shape":[8,2]}\np/moment1_0 I8 8,2\np/moment1_0@scales F32 2\np/moment2_0 U8 8,2\np/moment2_0@min_scales F32 2\n'
         b'p/moment2_0@max_scales F32 2'), ("model.safetensors", b"p BF16 8,2\n=format pt")],
    "own-sections": [
        (f"shard-0000{rank}-model-00001-of-00001.safetensors", b'=DCP_SHARDING_INFO {"a":{"saved_offsets":[' + str(2 * rank - 2).encode() +
         b',0]},"b":{"saved_offsets":[]}}\n=cairn.sections {"a":["optimizer","m"]}\na F32 2,3\nb I64 -') for rank in (1, 2)],
    "own-variants": [
        ("model.fp16-00001-of-00002.safetensors", b"a F16 2,3\n=format pt"), ("2:model.fp16-00002-of-00002.safetensors", b"b F16 4"),
        ("model.safetensors.index.fp16.json", b'{"metadata":{"total_size":20},"weight_map":{"a":"model.fp16-00001-of-00002.safetensors",'
         b'"b":"model.fp16-00002-of-00002.safetensors"}}'), ("sharded/x", b""), ("tokenizer.json", b"{}"),
        ("config.json", b'{"quantization_config":{"quant_method":"gptq","bits":4}}'), ("trainer_state.json", b'{"global_step":7}')],
    "own-empty-slices": [
        ("model-00001-of-00001.safetensors", b"=format np\na.q_proj.weight BF16 64,64\na.e.weight BF16 0,5"),
        ("config.json", b'{"model_type":"qwen3"}'), ("optimizer.safetensors.index.json", b'{"quant_ckpt_resume_times":0,"optim_shard_num":1}')] + [
        (f"optimizer.shard0{rank}.safetensors", b"=format np\na.q_proj.weight/moment1_0 F32 2048\na.q_proj.weight/moment2_0 F32 2048\n"
         b"a.e.weight/moment1_0 F32 0\na.e.weight/moment2_0 F32 0") for rank in (0, 1)],
}


def own_seeds():
    for name, parts in OWN.items():
        yield name, b"\n".join(b"#@" + file.encode() + b"\n" + content for file, content in parts)


def legacy_seeds():
    for path in sorted((HERE / "pickle").glob("paddle-legacy*")):
        data = path.read_bytes()
        end = [position for opcode, _, position in pickletools.genops(data) if opcode.name == "STOP"][0] + 1
        for name, (pickles, others) in LEGACY.items():
            parts = [(file, data[:end] if file.endswith(".pdparams") else data[end:]) for file in pickles]
            parts += [(file, b"") for file in others] + [("config.json", CONFIG)]
            yield f"{path.name}-{name}", b"\n".join(b"#@" + file.encode() + b"\n" + content for file, content in parts)


def main():
    out = HERE / "directory"
    out.mkdir(exist_ok=True)
    for path in out.iterdir():
        path.unlink()
    seeds = [(name, seed_of(folder, most)) for name, folder in folders() for most in (1, 2, 3, 4, 6)]
    largest = {}
    for name, seed in list(seeds) + list(legacy_seeds()) + list(own_seeds()):
        if len(seed) <= MOST_BYTES or name not in largest:
            largest[name] = seed
    for name, seed in largest.items():
        if seed in [path.read_bytes() for path in out.iterdir()]:
            continue
        print(f"{len(seed):6} {name}")
        (out / name).write_bytes(seed)


main()
