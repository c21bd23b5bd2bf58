"""Arguments of bench/peers/run. Needs no packages, so that --help and wrong arguments are answered before any are
installed; as a program it exits with 100 when the arguments are good.
"""

import argparse
import pathlib
import sys

import machine
import workload

ASYNCHRONOUS = ("cairn-async", "dcp-async", "dcp-async-process", "dcp-async-default")
SYSTEMS = ("cairn", "dcp", "dcp-hf", "dcp-hf-all", "safetensors-gather", "safetensors-shards", "hdf5", "raw-direct",
           "raw-buffered", *ASYNCHRONOUS)
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def size(text):
    number = text.rstrip("KMGiB")
    unit = text[len(number):]
    if unit not in UNITS:
        raise ValueError(f"no such unit: {unit}")
    return int(float(number) * UNITS[unit])


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench/peers/run", description="Compares Cairn with its peers.")
    parser.add_argument("--directory", action="append", help="where to write; may be given again [build]")
    parser.add_argument("--size", type=size, default=size("2GiB"), help="bytes of the state, e.g. 512MiB [2GiB]")
    parser.add_argument("--repeats", type=int, help="rounds [3; 5 with --results]")
    parser.add_argument("--systems", help="comma-separated; what they are compared with, cairn and cairn-async, is added [all]")
    parser.add_argument("--engine", help="Cairn's engine [its own choice]")
    parser.add_argument("--no-trials", action="store_true", help="give each system its first setting, not its best one")
    parser.add_argument("--output", type=pathlib.Path, help="write the report as JSON to this file")
    parser.add_argument("--results", action="store_true", help="write bench/results/peers-<date>.json and .md")
    parser.add_argument("--profile", action="store_true", help="print Cairn's phases beside the peers")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--bin", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--mpirun", required=True, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.size < workload.SMALLEST_SIZE:
        parser.error(f"--size must be at least {workload.SMALLEST_SIZE} bytes, not {options.size}")
    if options.repeats is not None and options.repeats < 1:
        parser.error(f"--repeats must be at least 1, not {options.repeats}")
    options.systems = set(SYSTEMS if options.systems is None else options.systems.split(","))
    options.systems |= {"cairn-async" if system in ASYNCHRONOUS else "cairn" for system in options.systems}
    if unknown := options.systems - set(SYSTEMS):
        parser.error(f"--systems: no {', '.join(sorted(unknown))}; there are {', '.join(SYSTEMS)}")
    options.repeats = options.repeats or (5 if options.results else 3)
    options.directory = [pathlib.Path(name) for name in options.directory or [machine.ROOT / "build"]]
    return options


if __name__ == "__main__":
    parse(["--bin", "", "--mpirun", "", *sys.argv[1:]])
    sys.exit(100)
