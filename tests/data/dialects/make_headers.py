"""Makes the directories of this folder from real checkpoints: headers instead of data files, and expected results.

usage: make_headers.py CHECKPOINT TRUTH DIALECT DESTINATION   (needs numpy)

CHECKPOINT  a directory written by the system itself
TRUTH       a safetensors file with the whole tensors, captured before the save; "-" for a checkpoint to be refused
Each data file becomes <name>.header: its first 8 + N bytes; other files than JSON become empty. expected.json has,
per "section:name", dtype, shape and the boxes [file, offset in bytes, offset, shape]. Boxes and bytes are found by
search: every box's data is compared with the same place of the truth, so that expected.json does not repeat the
rules that it checks.
"""
import json
import os
import shutil
import struct
import sys

import numpy as np

BYTES = {"BF16": 2, "U16": 2, "F32": 4, "I8": 1, "U8": 1}
SECTIONS = {"model": "model", "optimizer": "optimizer", "master_weights": "master_weights", "peft_model": "adapter"}


def read(path):
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        array = np.frombuffer(data[begin:end], "V%d" % BYTES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = (entry["dtype"], array, begin)
    return tensors, metadata, data[:8 + length]


def truth_name(section, name, truth):
    """Paddle's truth files have keys by role; the others have the tensor names themselves."""
    roles = {"model": ["model/", "master/"], "adapter": ["model/"], "master_weights": ["master/"], "optimizer": [""]}
    if section == "optimizer" and "/" in name:
        parameter, role = name.rsplit("/", 1)
        return [role + "/" + parameter]
    return [prefix + name for prefix in roles.get(section, [])] + [name]


def same(a, b):
    """Equal, or equal when transposed: PaddleFormers saves model weights in torch's layout when asked to."""
    return a.tobytes() == b.tobytes() or (a.ndim == 2 and a.shape == b.T.shape and a.tobytes() == b.T.tobytes())


def main():
    source, truth_path, dialect, destination = sys.argv[1:]
    truth = read(truth_path)[0] if truth_path != "-" else {}
    shutil.rmtree(destination, ignore_errors=True)
    os.makedirs(destination)
    index = {}
    for name in sorted(os.listdir(source)):
        path = os.path.join(source, name)
        if name.endswith(".index.json") and "weight_map" in json.load(open(path)):
            index.update({(name.split(".")[0], key): file for key, file in json.load(open(path))["weight_map"].items()})
    expected = {}
    for name in sorted(os.listdir(source)):
        path = os.path.join(source, name)
        if os.path.isdir(path):
            os.makedirs(os.path.join(destination, name))
            open(os.path.join(destination, name, "kept"), "w").close()
        elif name.endswith(".safetensors"):
            tensors, metadata, header = read(path)
            open(os.path.join(destination, name + ".header"), "wb").write(header)
            stem = name.split(".")[0].split("-0")[0]
            section = SECTIONS.get(stem, "model")
            offsets = json.loads(metadata.get("DCP_SHARDING_INFO", "{}"))
            for tensor, (dtype, array, begin) in tensors.items() if truth else []:
                if index.get((stem, tensor), name) != name:
                    continue
                offset = offsets.get(tensor, {}).get("saved_offsets", [0] * array.ndim)
                for key in truth_name(section, tensor, truth):
                    if key not in truth:
                        continue
                    whole_dtype, whole, _ = truth[key]
                    place = whole[tuple(slice(o, o + s) for o, s in zip(offset, array.shape))] if offsets else whole
                    if same(array, place):
                        break
                else:
                    sys.exit("%s: %s is not in the truth" % (name, tensor))
                shape = list(whole.shape) if offsets else list(array.shape)
                entry = expected.setdefault("%s:%s" % (section, tensor), [whole_dtype, shape, []])
                entry[2].append([name, begin, offset, list(array.shape)])
        elif os.path.getsize(path) < 8000 and name not in ("shards.json", "README.md"):
            shutil.copyfile(path, os.path.join(destination, name))
            if not name.endswith(".json"):
                open(os.path.join(destination, name), "w").close()
    text = {"dialect": dialect, "tensors": dict(sorted(expected.items()))}
    with open(os.path.join(destination, "expected.json"), "w") as out:
        json.dump(text, out, separators=(",", ":"))


main()
