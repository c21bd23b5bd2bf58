"""PaddlePaddle's files and codecs in NumPy, and loads of its directories in other layouts: for tests of reading.

Only the load uses Cairn. The codecs are computed from the formulas of src/quant/README.md."""

import collections
import json
import math
import os
import pathlib
import subprocess

import numpy

import support

BF16_NAMES = ("BF16", "U16")
DTYPES = {"F32": "<f4", "BF16": "<u2", "U16": "<u2", "I8": "i1", "U8": "u1"}
F32 = numpy.float32


def safetensors_of(file):
    """{name: (dtype, array of bytes as numbers)}; BF16 as 16-bit numbers."""
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = numpy.frombuffer(content[8 + length + begin:8 + length + end], DTYPES[entry["dtype"]])
        tensors[name] = (entry["dtype"], values.reshape(entry["shape"]))
    return tensors


def write_safetensors(file, tensors, form="np"):
    """`tensors`: {name: (dtype, array)}."""
    header, content = {"__metadata__": {"format": form}}, b""
    for name, (dtype, values) in tensors.items():
        data = numpy.ascontiguousarray(values, DTYPES[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [len(content), len(content) + len(data)]}
        content += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + content)


# Paddle's codecs: to codes and back, every step one operation in F32.

def ratio(v):
    return F32(1) / (numpy.sqrt(v) + F32(1e-8))


def not_zero(scale):
    return numpy.where(scale == 0, F32(1e-8), scale).astype(F32)


def codes(values, low, high):
    return numpy.clip(numpy.round(numpy.nan_to_num(values, nan=0.0)), low, high).astype(F32)


def second_moment(r):
    return (F32(1) / r - F32(1e-8)) ** 2


def o1_codes(m, v):
    """The tensors that O1 stores, by the suffix after the parameter's name."""
    axes = 0 if m.ndim == 2 else None
    r = ratio(v)
    s = not_zero(numpy.max(numpy.abs(m), axis=axes))
    low, high = not_zero(numpy.min(r, axis=axes)), not_zero(numpy.max(r, axis=axes))
    with numpy.errstate(invalid="ignore", divide="ignore"):
        qm = codes(m / s * F32(127), -128, 127)
        qr = codes((r - low) / (high - low) * F32(255), 0, 255)
    return {"/moment1_0": qm.astype("i1"), "/moment1_0@scales": s, "/moment2_0": qr.astype("u1"),
            "/moment2_0@min_scales": low, "/moment2_0@max_scales": high}


def o1_values(parts):
    low, high = parts["/moment2_0@min_scales"], parts["/moment2_0@max_scales"]
    r = parts["/moment2_0"].astype(F32) / F32(255) * (high - low) + low
    return parts["/moment1_0"].astype(F32) / F32(127) * parts["/moment1_0@scales"], second_moment(r)


def grouped(values):
    return values.reshape(values.shape[0] // 32, 32, values.shape[1])


def o2_codes(m, v):
    if m.ndim == 1:
        return {"/moment1_0": m, "/moment2_0": v}
    shape = m.shape
    m, r = grouped(m), grouped(ratio(v))
    s = numpy.max(numpy.abs(m), axis=1, keepdims=True)
    low, high = numpy.min(r, axis=1, keepdims=True), numpy.max(r, axis=1, keepdims=True)
    with numpy.errstate(invalid="ignore", divide="ignore"):
        qm = codes(m / s * F32(7), -8, 7).astype("i1")
        qr = codes((r - low) / (high - low) * F32(15), 0, 15).astype("i1")
    return {"/moment2_0": (qm << 4 | qr & 0xF).reshape(shape), "/moment1_0@scales": s[:, 0],
            "/moment2_0@min_scales": low[:, 0], "/moment2_0@max_scales": high[:, 0]}


def o2_values(parts):
    if "/moment1_0" in parts:
        return parts["/moment1_0"], parts["/moment2_0"]
    packed = grouped(parts["/moment2_0"])
    s, low, high = (parts[f"/{scale}"][:, None] for scale in
                    ("moment1_0@scales", "moment2_0@min_scales", "moment2_0@max_scales"))
    m = (packed >> 4).astype(F32) * s / F32(7)
    r = (packed & 0xF).astype(F32) / F32(15) * (high - low) + low
    shape = parts["/moment2_0"].shape
    return m.reshape(shape), second_moment(r).reshape(shape)


CODES = {"O1": o1_codes, "O2": o2_codes, None: lambda m, v: {"/moment1_0": m, "/moment2_0": v}}
VALUES = {"O1": o1_values, "O2": o2_values, None: lambda parts: (parts["/moment1_0"], parts["/moment2_0"])}


def coded(codec, slices, m, v):
    """Both moments after coding and decoding. `slices`: the elements of each slice that is coded separately,
    as positions in the flattened tensor; -1: a zero of padding."""
    m_out, v_out = numpy.full(m.size, numpy.nan, F32), numpy.full(v.size, numpy.nan, F32)
    for at in slices:
        inside = at >= 0
        made = VALUES[codec](CODES[codec](cut_out(m, at), cut_out(v, at)))
        for out, values in zip((m_out, v_out), made):
            out[at[inside]] = values[inside]
    assert not numpy.isnan(m_out).any() and not numpy.isnan(v_out).any()
    return m_out.reshape(m.shape), v_out.reshape(v.shape)


def cut_out(values, at):
    return numpy.where(at >= 0, values.reshape(-1)[at], F32(0)).astype(values.dtype)


class LoadCase(support.TestCase):
    """`state`: {(section, name): (dtype, array)}."""

    directories = 0
    tensors = collections.Counter()

    def load(self, cases):
        """For each (directory, state) {cut: {(section, name): array}}, assembled from the ranks' boxes."""
        program = pathlib.Path(os.environ["CAIRN_BIN_DIR"]) / "load_boxes"
        command = [*os.environ["CAIRN_MPIEXEC"].split(), str(self.ranks), program]
        places = []
        for number, (directory, state) in enumerate(cases):
            out = support.fresh(f"out-{number}")
            out.mkdir()
            keys = sorted(state)
            lines = ["\t".join(map(str, (*key, "BF16" if state[key][0] in BF16_NAMES else state[key][0],
                                         *state[key][1].shape))) for key in keys]
            (out / "list").write_text("".join(line + "\n" for line in lines))
            command += [directory, out / "list", out]
            places.append((state, keys, out))
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [{cut: self.put_together(*place, cut) for cut in ("rows", "columns", "flat")} for place in places]

    def put_together(self, state, keys, out, cut):
        loaded = [numpy.zeros_like(state[key][1]) for key in keys]
        seen = [numpy.zeros(state[key][1].shape, bool) for key in keys]
        for rank in range(self.ranks):
            content, at = (out / f"{cut}.{rank}.bin").read_bytes(), 0
            for line in (out / f"{cut}.{rank}.txt").read_text().splitlines():
                number, *box = map(int, line.split("\t"))
                offset, shape = box[:len(box) // 2], box[len(box) // 2:]
                where = tuple(slice(o, o + s) for o, s in zip(offset, shape))
                values = numpy.frombuffer(content, loaded[number].dtype, math.prod(shape), at).reshape(shape)
                loaded[number][where], seen[number][where] = values, True
                at += values.nbytes
            self.assertEqual(at, len(content))
        for key, places in zip(keys, seen):
            self.assertTrue(places.all(), f"{key}: no rank had a part of it")
        return dict(zip(keys, loaded))

    def check_loads(self, name, directory, state):
        self.check_all_loads([(name, directory, state)])

    def check_all_loads(self, cases):
        """Loads several (name, directory, state) with one program."""
        loads = self.load([(directory, state) for _, directory, state in cases])
        for (name, _, state), cuts in zip(cases, loads):
            for cut, loaded in cuts.items():
                for key, (_, values) in state.items():
                    self.assertEqual(loaded[key].tobytes(), numpy.ascontiguousarray(values).tobytes(), f"{name} {cut} {key}")
            kinds = collections.Counter(f"{section}, {dtype}" for (section, _), (dtype, _) in state.items())
            self.tensors.update(kinds)
            type(self).directories += 1
            print(f"{name}: " + "; ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items())), flush=True)

    @classmethod
    def tearDownClass(cls):
        print(f"{cls.directories} directories on {cls.ranks} ranks; tensors by kind, each in three layouts:")
        for kind, count in sorted(cls.tensors.items()):
            print(f"  {count:5} {kind}")
