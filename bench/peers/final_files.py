"""Final Hugging Face files of any system: opened by the official safetensors package, checked, and read in boxes."""

import json
import pathlib

from safetensors import safe_open

import ranks
import workload
from held import Held, bits_of
from values import Values

CHECKING_RANKS = 4


def places_in_one_namespace(directory, tensors):
    """{key: (file, name in it)} of a model.safetensors.index.json."""
    index = json.loads((pathlib.Path(directory) / "model.safetensors.index.json").read_text())["weight_map"]
    return {tensor.key: (pathlib.Path(directory) / index[tensor.key], tensor.key) for tensor in tensors}


def places_in_sections(directory, tensors):
    """{key: (file, name in it)} of Cairn's directory: one set of files per section, with its index."""
    out, maps = {}, {}
    for section in {tensor.section for tensor in tensors}:
        index = pathlib.Path(directory) / f"{section}.safetensors.index.json"
        maps[section] = json.loads(index.read_text())["weight_map"] if index.exists() else None
    for tensor in tensors:
        names = maps[tensor.section]
        file = names[tensor.name] if names is not None else f"{tensor.section}.safetensors"
        out[tensor.key] = (pathlib.Path(directory) / file, tensor.name)
    return out


def _check(rank, size, directory, config, places_of):
    tensors = workload.tensors_of(config)
    places = places_of(directory, tensors)
    compared = 0
    for tensor in tensors[rank::size]:
        file, name = places[tensor.key]
        with safe_open(file, framework="pt") as opened:
            found = opened.get_tensor(name)
        whole = workload.Box((0,) * len(tensor.shape), tensor.shape)
        if not Values(tensor).is_equal(whole, bits_of(found, tensor.dtype)):
            print(f"{file}: {name} is not what was saved", flush=True)
            return -1
        compared += tensor.size_bytes
    return compared


def are_right(directory, config, places_of):
    """Whether the files hold every byte of the truth, and each tensor once."""
    compared = ranks.run(CHECKING_RANKS, _check, str(directory), config, places_of)
    return min(compared) >= 0 and sum(compared) == workload.total_bytes(workload.tensors_of(config))


def load(rank, _size, directory, config, layout):
    """Each rank reads its boxes by get_slice: (seconds, equal)."""
    held = Held(config, layout, rank, fill=False)
    found = {}

    def read():
        places = places_in_one_namespace(directory, held.tensors)
        by_file = {}
        for key in held.boxes:
            by_file.setdefault(places[key][0], []).append(key)
        for file, keys in sorted(by_file.items()):
            with safe_open(file, framework="pt") as opened:
                for key in keys:
                    box = held.boxes[key]
                    slices = tuple(slice(o, o + s) for o, s in zip(box.offset, box.shape))
                    # Memory-mapped until it is copied: the copy reads it.
                    held.local[key].copy_(opened.get_slice(places[key][1])[slices])
                    found[key] = held.local[key]

    return ranks.timed(read), held.is_equal(found)
