"""Helpers of the interop tests: run `cairn` on ranks, and read directories with the official safetensors package.

Tensors are compared as (dtype, shape, bytes), so that NaNs are compared as well. Comparisons report the number of
tensors, and zero is a failure."""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

import torch
from safetensors import safe_open

Tensor = collections.namedtuple("Tensor", "dtype shape data")
DATA = pathlib.Path(os.environ["CAIRN_TEST_DATA"])
SECTION = re.compile(r"(.+?)(?:-\d{5}-of-\d{5})?\.safetensors")


def cairn(*arguments, ranks=1):
    """Runs `cairn ARGUMENTS` on that many ranks; any exit status but 0 is an error with the whole output."""
    return run("cairn", *arguments, ranks=ranks)


def run(name, *arguments, ranks=1):
    """The same for any built program."""
    program = pathlib.Path(os.environ["CAIRN_BIN_DIR"]) / name
    if not program.exists():
        raise AssertionError(f"{program} is not built")
    command = [*os.environ["CAIRN_MPIEXEC"].split(), str(ranks), str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    print("$", " ".join(command[:1] + ["..."] + command[3:]), "->", done.returncode, flush=True)
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def in_memory(tensor):
    """A torch tensor in the form for comparison; the dtype has its safetensors name."""
    names = {torch.bfloat16: "BF16", torch.float32: "F32", torch.uint16: "U16"}
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return Tensor(names[tensor.dtype], tuple(tensor.shape), data)


def data_files(directory):
    return sorted(pathlib.Path(directory).glob("*.safetensors"))


def section_of(file):
    return SECTION.fullmatch(file.name)[1]


def read_file(file):
    """All tensors of one safetensors file, opened by the official package."""
    with safe_open(file, framework="pt") as opened:
        return {name: Tensor(opened.get_slice(name).get_dtype(), tuple(opened.get_slice(name).get_shape()),
                             in_memory(opened.get_tensor(name)).data) for name in opened.keys()}


def read_sections(directory):
    """{section: {name: Tensor}} of every data file at the top of the directory."""
    sections = collections.defaultdict(dict)
    for file in data_files(directory):
        sections[section_of(file)].update(read_file(file))
    return dict(sections)


def digests(directory):
    """{file name: SHA-256} of the data files."""
    found = {}
    for file in data_files(directory):
        digest = hashlib.sha256()
        with open(file, "rb") as opened:
            while piece := opened.read(1 << 24):
                digest.update(piece)
        found[file.name] = digest.hexdigest()
    return found


def fresh(name):
    """An empty place below the current directory (each ctest entry has its own)."""
    path = pathlib.Path(name).resolve()
    shutil.rmtree(path, ignore_errors=True)
    return path


class TestCase(unittest.TestCase):
    longMessage = True
    ranks = 1

    def assert_same_tensors(self, found, expected, dtypes_alike=()):
        """Expects the same names, and for each name the same dtype (or both in `dtypes_alike`), shape and bytes."""
        self.assertGreater(len(expected), 0, "nothing to compare")
        self.assertEqual(sorted(found), sorted(expected))
        for name, tensor in expected.items():
            if not {found[name].dtype, tensor.dtype} <= set(dtypes_alike):
                self.assertEqual(found[name].dtype, tensor.dtype, name)
            self.assertEqual(found[name].shape, tensor.shape, name)
            self.assertTrue(found[name].data == tensor.data, f"{name}: the bytes differ")
        print(f"{len(expected)} tensors compared", flush=True)

    def assert_well_indexed(self, directory, section="model"):
        """Expects file names by the Hugging Face rule, and an index that names each tensor's file."""
        files = [file for file in data_files(directory) if section_of(file) == section]
        index = pathlib.Path(directory) / f"{section}.safetensors.index.json"
        if len(files) == 1:
            self.assertEqual(files[0].name, f"{section}.safetensors")
            self.assertFalse(index.exists(), f"{index} beside a single file")
            return
        names = [f"{section}-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))]
        self.assertEqual([file.name for file in files], names)
        where, size = {}, 0
        for file in files:
            with safe_open(file, framework="pt") as opened:
                self.assertEqual(set(opened.keys()) & set(where), set(), file.name)
                where.update({name: file.name for name in opened.keys()})
            with open(file, "rb") as opened:
                size += file.stat().st_size - 8 - int.from_bytes(opened.read(8), "little")
        self.assertEqual(json.loads(index.read_text())["weight_map"], where)
        self.assertEqual(json.loads(index.read_text())["metadata"]["total_size"], size)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=1)
    TestCase.ranks = parser.parse_args().ranks
    unittest.main(argv=["test"], verbosity=2)
