#!/usr/bin/env python3
"""Writes the golden files of this folder, without any code of Cairn.

Run `python3 make_golden.py` here, with the `safetensors` package installed (0.8.0 wrote the committed files). The
safetensors files come from that package, the index from Python's json, and the manifest and the block table from the few
lines below, which follow src/format/FORMAT.md.
"""
import ctypes
import json
import pathlib
import struct

import safetensors
from safetensors import TensorSpec

HERE = pathlib.Path(__file__).resolve().parent

# safetensors name -> (bits, name in the Python package)
DTYPES = {
    "BOOL": (8, "bool"), "F4": (4, "float4_e2m1fn_x2"), "F6_E2M3": (6, None), "F6_E3M2": (6, None), "U8": (8, "uint8"),
    "I8": (8, "int8"), "F8_E5M2": (8, "float8_e5m2"), "F8_E4M3": (8, "float8_e4m3fn"),
    "F8_E8M0": (8, "float8_e8m0fnu"), "F8_E4M3FNUZ": (8, "float8_e4m3fnuz"), "F8_E5M2FNUZ": (8, "float8_e5m2fnuz"),
    "I16": (16, "int16"), "U16": (16, "uint16"), "F16": (16, "float16"), "BF16": (16, "bfloat16"), "I32": (32, "int32"),
    "U32": (32, "uint32"), "F32": (32, "float32"), "C64": (64, "complex64"), "F64": (64, "float64"),
    "I64": (64, "int64"), "U64": (64, "uint64"),
}


def tensor(name, dtype, shape):
    return {"name": name, "dtype": dtype, "shape": shape}


CASES = {
    "empty": ([], {}),
    "one": ([tensor("weight", "F32", [2, 3])], {}),
    "metadata": ([tensor("a", "BF16", [4])], {"format": "pt"}),
    "metadata_escapes": ([], {'k"\\/\b\f\n\r\t\u0001\u001f\u007f\u2028é': '"\\/\b\f\n\r\t\u0000\u001f\u007f\u2029😀'}),
    "names": ([tensor(n, "U8", [1]) for n in
               ["z", "b", "a.2", "a.10", "a", "B", "é", "", "quote\"back\\slash/", "tab\tnew\nline\rnul\u0000esc\u001b",
                "del\u007f", "sep\u2028", "😀", "bell\u0007\b\f", "e\u0301"]], {}),
    "shapes": ([tensor("scalar", "F64", []), tensor("zero", "F32", [2, 0, 3]), tensor("ones", "I32", [1, 1, 1]),
                tensor("deep", "U8", [1] * 20)], {}),
    "f4": ([tensor("packed", "F4", [3, 4]), tensor("after", "BOOL", [3])], {}),
    "dtypes": ([tensor(f"t.{d.lower()}", d, [2, 4]) for d, (_, py) in DTYPES.items() if py], {"format": "pt"}),
    "mixed_order": ([tensor(f"{d}.{i}", d, [i + 1]) for i in (2, 0, 1) for d in ("BOOL", "F16", "I64", "BF16", "F32")], {}),
    "long_header": ([tensor(f"model.layers.{i}.self_attn.q_proj.weight", "BF16", [2, 2]) for i in range(300)], {}),
}


def write_safetensors():
    listing = []
    for case, (tensors, metadata) in CASES.items():
        specs, keep = {}, []
        for t in tensors:
            bits, python_name = DTYPES[t["dtype"]]
            elements = 1
            for d in t["shape"]:
                elements *= d
            size = elements * bits // 8
            data = ctypes.create_string_buffer(bytes((7 * i + len(t["name"])) % 256 for i in range(size)), max(size, 1))
            keep.append(data)
            shape = list(t["shape"])
            if t["dtype"] == "F4":  # the package counts torch's packed pairs
                shape[-1] //= 2
            specs[t["name"]] = TensorSpec(dtype=python_name, shape=shape, data_ptr=ctypes.addressof(data), data_len=size)
        path = HERE / "safetensors" / f"{case}.safetensors"
        path.write_bytes(bytes(safetensors.serialize(specs, metadata or None)))
        listing.append({"file": path.name, "tensors": tensors, "metadata": metadata})
    text = json.dumps({"safetensors_version": safetensors.__version__, "cases": listing})
    (HERE / "safetensors" / "cases.json").write_text(text + "\n")


def write_index():
    names = ["lm_head.weight", "model.embed_tokens.weight", "model.layers.10.weight", "model.layers.2.weight", "B", "a",
             "é", "e\u0301", "中文.权重", "😀.weight", "quote\"back\\slash/", "tab\tnew\nline\u0000\u001b\u007f", "\u2028", "",
             "\uffff", "\U00010000"]
    index = {
        "metadata": {"total_size": 18446744073709551615, "total_parameters": 8030261248},
        "weight_map": {n: f"model-{i % 3 + 1:05d}-of-00003.safetensors" for i, n in enumerate(names)},
    }
    (HERE / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(crc):
    """CRC as stored inside bytes that are covered by another CRC; a message that ends with its own CRC
    always has the same."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def content(size, seed):
    return bytes((i * i + 31 * i + seed) % 251 for i in range(size))


def padded(data):
    return data + bytes(-len(data) % 8)


def block_table(files, block):
    body = b""
    for name, data in files:
        crcs = [crc32c(data[i:i + block]) for i in range(0, len(data), block)]
        raw_name = name.encode()
        body += struct.pack("<IIQQ", len(raw_name), 0, len(data), len(crcs))
        body += padded(raw_name) + padded(struct.pack(f"<{len(crcs)}I", *crcs))
    total = 48 + len(body) + 4
    head = b"CAIRNBLK" + struct.pack("<IIIIQQQ", 1, 48, 0, 0, block, len(files), total)
    return head + body + struct.pack("<I", masked(crc32c(head + body)))


def write_checkpoint():
    data = [("model-00001-of-00002.safetensors", content(1000, 1)), ("model-00002-of-00002.safetensors", content(1024, 2)),
            ("optimizer.safetensors", content(777, 3)), ("poids-é.safetensors", b"")]
    carried = [("config.json", content(20, 4)), ("rng/rank-0.bin", content(33, 5))]
    blocks = block_table(data, 256)
    (HERE / "cairn.blocks").write_bytes(blocks)

    def entry(name, body, section=None):
        out = {"name": name, "size_bytes": len(body), "crc32c": f"{crc32c(body):08x}"}
        return {**out, "section": section} if section else out

    manifest = {
        "format": "cairn-checkpoint", "format_version": 2, "tool": "cairn 0.1.0", "step": 1000, "run_id": "7b-é",
        "parent": "checkpoint-900", "layout": "tp=4,pp=2,dp=2", "ranks": 16, "rank_blobs": 16, "form": "hf", "block_bytes": 256,
        "blocks_crc32c": f"{crc32c(blocks):08x}",
        "data_files": [entry(n, b, n.split("-")[0].split(".")[0]) for n, b in data],
        "carried_files": [entry(n, b) for n, b in carried],
        "quantisation": {"optimizer": "int8"}, "user_metadata": {"note": "\"quoted\" 中"},
        "some_later_key": {"kept": [1, -2, 0.5, None, True]},
        "epoch": 3, "counter": 2, "lineage": [{"epoch": 1, "step": 500}, {"epoch": 2, "step": 900, "counter": 4}],
        "kind": "whole", "manifest_crc32c": "00000000",
    }
    write_manifest("cairn.json", manifest)
    write_manifest("metrics.json", {**manifest, "metrics": {"loss": 2.3456, "perplexité": 1e-05, "tokens": 3e+20, "zero": -0.0}})
    write_manifest("part.json", {
        **manifest, "kind": "part", "base": {"step": 900, "identity": "run 7b-é"},
        "part": {"only": [{"sections": ["adapter"]}, {"sections": ["model", "poids"], "names": ["*.lora_é.*"]}],
                 "without": ["optimizer"]}})


def write_manifest(name, manifest):
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    assert text.count("00000000") == 2  # the digits of the checksum, and the digest of an empty file
    own = '"manifest_crc32c": "'
    (HERE / name).write_text(text.replace(own + "00000000", f"{own}{crc32c(text.encode()):08x}"))


def write_log():
    """One line of each kind; the last one is torn, as a crash leaves it."""
    saved = {
        "version": 1, "time": "2026-11-27T20:15:55.123Z", "what": "save", "step": 1000, "outcome": "good", "seconds": 3.75,
        "stall_seconds": 0.5, "wait_seconds": 0.25, "background_seconds": 3.25,
        "phases": {"plan": 0.125, "write": 2.5, "commit": 0.0625}, "bytes": 1099511627776, "files": 220, "ranks": 64, "nodes": 8,
        "engine": "direct", "codecs": {"optimizer": "q8"}, "ratio": 1.84, "run_id": "llama-8b", "tool": "cairn 0.1.0",
    }
    failed = {
        "version": 1, "time": "2026-11-27T20:30:00.000Z", "what": "save", "step": 1500, "outcome": "failed",
        "error": {"kind": "io", "text": "write to 'model \u4e2d' failed: No space left on device"}, "seconds": 1.5, "ranks": 64,
        "nodes": 8, "tool": "cairn 0.1.0",
    }
    loaded = {
        "version": 1, "time": "2026-11-27T21:00:01.999Z", "what": "load", "step": 1000, "outcome": "good", "seconds": 2.0,
        "phases": {"read": 1.5}, "bytes": 1099511627776, "files": 220, "ranks": 32, "nodes": 4, "engine": "direct",
        "skipped": [1400, 1200], "run_id": "llama-8b", "tool": "cairn 0.1.0",
    }
    verified = {
        "version": 1, "time": "2026-11-28T00:00:00.000Z", "what": "verify", "step": 1000, "outcome": "failed",
        "error": {"kind": "integrity", "text": "block 3 has a wrong checksum"}, "seconds": 10.0, "bytes": 1000, "files": 220,
        "faults": 2, "ranks": 1, "nodes": 1, "tool": "cairn 0.1.0",
    }
    summed = {
        "version": 1, "time": "2026-11-25T00:00:10.000Z", "what": "sum", "until": "2026-11-25T23:59:00.000Z", "of": "save",
        "outcomes": {"failed": 1, "good": 95}, "lowest_step": 100, "highest_step": 960,
        "measures": {"bytes": {"count": 95, "sum": 9500.0, "min": 100.0, "max": 100.0},
                     "seconds": {"count": 95, "sum": 190.5, "min": 1.5, "max": 4.25}},
        "run_id": "llama-8b",
    }
    lines = [json.dumps(line, separators=(",", ":"), ensure_ascii=False) for line in (summed, saved, failed, loaded, verified)]
    (HERE / "cairn.log.jsonl").write_text("\n".join(lines) + "\n" + lines[1][:100])


def write_environment():
    environment = {
        "version": 1, "tool": "cairn 0.1.0", "mpi": "Open MPI v4.1.4", "cuda": "13.0", "nvidia_driver": "570.133.20",
        "hdf5": "1.10.8", "compiler": "GCC 12.2.0", "kernel": "Linux 6.1.0 x86_64", "file_system": "lustre", "ranks": 8,
        "nodes": 2, "fewest_ranks_per_node": 4, "most_ranks_per_node": 4, "hosts": ["n1", "n2"],
        "git_revision": "abc123-dirty", "values": {"torch": "2.9.1", "gr\u00f6\u00dfe": "7B"},
        "command_line": ["train", "--lr", "0.1"],
    }
    (HERE / "cairn.environment.json").write_text(json.dumps(environment, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    assert crc32c(b"123456789") == 0xE3069283
    write_safetensors()
    write_index()
    write_checkpoint()
    write_log()
    write_environment()
