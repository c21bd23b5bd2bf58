"""Makes a checkpoint of many small tensors: the names of a mixture of experts' training state, without its sizes.

The cost of metadata does not depend on the bytes of tensors, so each tensor has eight elements. The checkpoint has
model, master weights and both moments of every parameter, in three file sets with an index each, as Hugging Face
libraries write them. A second one has only a model, in one file set: there, nothing divides the work by sections.
"""

import json
import math
import os
import struct

EXPERTS = 256
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
SHAPE = (2, 4)
ONE_SECTION_SHAPE = (7, 4)


def parameters(count):
    """`count` names, sorted as text."""
    names = []
    layer = 0
    while len(names) < count:
        for expert in range(EXPERTS):
            for projection in PROJECTIONS:
                names.append(f"model.layers.{layer}.mlp.experts.{expert}.{projection}.weight")
        layer += 1
    return sorted(names[:count])


def parameters_of_groups(count):
    """`count` names with more numbers, sorted as text."""
    return sorted(f"model.layers.{i // 4096}.mlp.experts.{i // 64 % 64}.{i // 8 % 8}.{i % 8}.gate_proj.weight"
                  for i in range(count))


def write_file(path, names, dtype, shape, size_bytes, fill):
    header = {"__metadata__": {"format": "pt"}}
    for i, name in enumerate(names):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [i * size_bytes, (i + 1) * size_bytes]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes([fill]) * (len(names) * size_bytes))


def write_set(folder, stem, names, dtype, element_bytes, files, fill, shape=SHAPE):
    """Writes the tensors into `files` files of even size, and their index."""
    size_bytes = math.prod(shape) * element_bytes
    weight_map = {}
    for number in range(files):
        part = names[len(names) * number // files : len(names) * (number + 1) // files]
        file = f"{stem}-{number + 1:05d}-of-{files:05d}.safetensors"
        write_file(os.path.join(folder, file), part, dtype, shape, size_bytes, fill)
        weight_map.update(dict.fromkeys(part, file))
    index = {"metadata": {"total_size": len(names) * size_bytes}, "weight_map": weight_map}
    with open(os.path.join(folder, f"{stem}.safetensors.index.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(index, indent=2, sort_keys=True) + "\n")


def write_checkpoint(folder, tensors, files, fill=0):
    """`tensors` and `files` are rounded down to multiples of four: one share each for model, master weights and the two
    moments. Returns the number of tensors."""
    os.makedirs(folder)
    names = parameters(tensors // 4)
    share = files // 4
    moments = sorted(name + suffix for name in names for suffix in (".exp_avg", ".exp_avg_sq"))
    write_set(folder, "model", names, "BF16", 2, share, fill)
    write_set(folder, "master_weights", names, "F32", 4, share, fill)
    write_set(folder, "optimizer", moments, "F32", 4, 2 * share, fill)
    return 4 * len(names)


def write_one_section(folder, tensors, files):
    """Returns the number of tensors: the same in each file."""
    os.makedirs(folder)
    names = parameters_of_groups(tensors // files * files)
    write_set(folder, "model", names, "F32", 4, files, 0, ONE_SECTION_SHAPE)
    return len(names)
