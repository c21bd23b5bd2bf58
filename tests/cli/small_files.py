"""Small safetensors files and checkpoint directories, written with only struct and json."""

import json
import pathlib
import struct

FORMATS = {"F32": "f", "F64": "d", "I64": "q", "U64": "Q", "U8": "B"}
INDEX = "model.safetensors.index.json"


def values(dtype, shape, numbers):
    """A tensor as the functions below take it."""
    data = struct.pack(f"<{len(numbers)}{FORMATS[dtype]}", *numbers)
    count = 1
    for size in shape:
        count *= size
    assert count == len(numbers), (shape, len(numbers))
    return dtype, list(shape), data


def counting(dtype, shape, start=0):
    count = 1
    for size in shape:
        count *= size
    return values(dtype, shape, [start + i for i in range(count)])


def header_of(tensors, metadata=None):
    header = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    return header


def write_raw(path, header, data):
    """`header`: converted to JSON, or the bytes themselves."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_safetensors(path, tensors, metadata=None):
    write_raw(path, header_of(tensors, metadata), b"".join(data for _, _, data in tensors.values()))


def read_safetensors(path):
    """{name: (dtype, shape, data)} of a file, and its metadata."""
    content = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    data = content[8 + length :]
    metadata = header.pop("__metadata__", None)
    spans = {name: entry["data_offsets"] for name, entry in header.items()}
    return {name: (entry["dtype"], entry["shape"], data[slice(*spans[name])]) for name, entry in header.items()}, metadata


def read_checkpoint(folder):
    """All tensors of all safetensors files of a folder."""
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        for name, tensor in read_safetensors(path)[0].items():
            assert name not in tensors, name
            tensors[name] = tensor
    return tensors


def write_index(folder, weight_map, total_size=212):
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total_size}, "weight_map": weight_map}))


FIRST = "model-00001-of-00002.safetensors"
SECOND = "model-00002-of-00002.safetensors"


def two_shards(folder):
    """Writes a Hugging Face directory of two files and an index (212 bytes of tensors). Returns its tensors by file."""
    files = {
        FIRST: {"a.weight": counting("F32", [4, 6])},
        SECOND: {"b.weight": counting("F32", [6, 4], 100), "c.bias": counting("F32", [5], 1000)},
    }
    for name, tensors in files.items():
        write_safetensors(folder / name, tensors, {"format": "pt"})
    write_index(folder, {tensor: name for name, tensors in files.items() for tensor in tensors})
    (folder / "config.json").write_text('{"model_type": "none-of-the-families"}')
    return files


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def write_manifest(path, content):
    """A cairn.json that a test has changed, with the checksum of its new text."""
    text = json.dumps({**content, "manifest_crc32c": "00000000"}, indent=2, sort_keys=True) + "\n"
    digits = text.rindex('"manifest_crc32c": "') + len('"manifest_crc32c": "')
    pathlib.Path(path).write_text(f"{text[:digits]}{crc32c(text.encode()):08x}{text[digits + 8:]}")
