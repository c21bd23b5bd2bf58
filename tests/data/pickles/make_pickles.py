#!/usr/bin/env python3
"""Writes the pickles of this folder: python3 make_pickles.py. Needs numpy; README.md describes the files.

The tests know the values; a file is named <what>.p<protocol>."""

import collections
import enum
import math
import pathlib
import pickle
import random

import numpy as np

HERE = pathlib.Path(__file__).parent


class Color(enum.Enum):
    RED = 1


class State:
    """An object with a dict as its state."""

    def __init__(self):
        self.step = 3
        self.color = Color.RED
        self.me = self


class Named:
    """An object made with keyword arguments."""

    def __new__(cls, *, size):
        out = super().__new__(cls)
        out.size = size
        return out

    def __getnewargs_ex__(self):
        return (), {"size": self.size}


class Entries(dict):
    """An object with items of its own, and a state."""


class Elements(list):
    """An object with elements of its own, and a state."""


def plain():
    shared = [1]
    circle = []
    circle.append(circle)
    return {
        "none": None,
        "true": True,
        "false": False,
        "integers": [0, 1, -1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**63, 2**64 - 1],
        "long": [2**64, -(2**70), 0x1950A86A20F9469CFC6C],
        "floats": [0.0, -0.0, 0.1, 1e300, 5e-324, math.inf, -math.inf],
        "nan": math.nan,
        "text": "a\\b\n'\"\0é€\U0001f40d",
        "empty text": "",
        "bytes": b"\x00\x7f\x80\xff'\n",
        "empty bytes": b"",
        "bytearray": bytearray(b"\x01\xfe"),
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "set": {7},
        "frozenset": frozenset({8}),
        "shared": [shared, shared],
        "circle": circle,
        (1, "a"): "tuple",
        5: "five",
    }


def arrays():
    floats = np.arange(6, dtype="f4").reshape(2, 3)
    return collections.OrderedDict(
        f4=floats,
        fortran=np.asfortranarray(floats),
        big=floats.astype(">f4"),
        scalar_array=np.array(2.5),
        empty=np.zeros((2, 0), "i8"),
        i8=np.array([-1, 2**62]),
        u2=np.array([0x3F80, 0xC0FF], "u2"),
        bool=np.array([True, False]),
        c16=np.array([1 + 2j]),
        objects=np.array([None, "x"], dtype=object),
        text=np.array(["ab"]),
        f4_scalar=np.float32(1.5),
        f8_scalar=np.float64(0.1),
        i4_scalar=np.int32(-7),
        big_scalar=np.dtype(">i8").type(5),
        bool_scalar=np.bool_(True),
        large=np.arange(2000, dtype="u4"),
    )


class Tensor:
    """Pickled as paddle.save pickles a tensor with a name."""

    def __init__(self, name, data):
        self.name, self.data = name, data

    def __reduce__(self):
        return tuple, ((self.name, self.data),)


class NamelessTensor:
    """Pickled as paddle.save pickles a tensor without a name."""

    def __init__(self, data):
        self.data = data

    def __reduce__(self):
        return eval, ("data", {"data": self.data})


def paddle():
    return {
        "linear_0.w_0": Tensor("linear_0.w_0", np.arange(4, dtype="f4")),
        "nameless": NamelessTensor(np.arange(3, dtype="f4")),
        "array": np.arange(2, dtype="u2"),
        "master_weights": {"linear_0.w_0": Tensor("linear_0.w_0_fp32_master_0", np.ones((2, 2), "f4"))},
        "LR_Scheduler": {"last_epoch": 3, "last_lr": 0.5},
        "StructuredToParameterName@@": {"fc.weight": "linear_0.w_0"},
        # The form that protocols 2 and 3 give an array of 1 GiB and more, here with 3 elements instead of 2^30 bytes.
        "big@@.0": np.array([0, 1, 2], "f4"),
        "big@@.1": np.array([3], "f4"),
        "UnpackBigParamInfor@@": {"big": {"OriginShape": (2, 2), "slices": ["big@@.0", "big@@.1"]}},
    }


def objects():
    entries = Entries(a=1)
    entries.note = "x"
    elements = Elements([1, 2])
    elements.note = "y"
    return [State(), Color.RED, entries, elements, collections.defaultdict(list, k=[1]), pathlib.PurePosixPath("a/b"), State, len]


def random_states():
    random.seed(5)
    np.random.seed(6)
    return {"python": random.getstate(), "numpy": np.random.get_state(legacy=True)}


def write(name, value, protocols):
    for protocol in protocols:
        (HERE / f"{name}.p{protocol}").write_bytes(pickle.dumps(value, protocol))


class Command:
    def __reduce__(self):
        import os

        return os.system, ("touch executed",)


def main():
    every = range(6)
    write("plain", plain(), every)
    write("arrays", arrays(), every)
    write("paddle", paddle(), (2, 3, 4))
    write("objects", objects(), every)
    write("keywords", Named(size=3), (2, 3, 4, 5))
    write("random", random_states(), (2, 4))
    write("many", list(range(2500)), (2, 4))
    write("command", {"weights": np.arange(2, dtype="f4"), "run": Command()}, every)


if __name__ == "__main__":
    main()
