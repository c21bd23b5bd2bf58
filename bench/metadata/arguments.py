"""Arguments of bench/metadata/run. Needs no packages; as a program it exits with 100 when the arguments are good."""

import argparse
import pathlib
import sys

FEWEST_TENSORS = 1000


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench/metadata/run",
                                     description="Measures what the metadata of a checkpoint of many tensors costs.")
    parser.add_argument("--directory", type=pathlib.Path, help="where to write [build]")
    parser.add_argument("--tensors", type=int, default=270_000, help="about so many [270000]")
    parser.add_argument("--files", type=int, default=160, help="data files [160]")
    parser.add_argument("--ranks", type=int, default=4, help="of diff and load [4]")
    parser.add_argument("--repeats", type=int, default=3, help="rounds [3]")
    parser.add_argument("--output", type=pathlib.Path, help="write the figures as JSON to this file")
    parser.add_argument("--check", action="store_true", help="exit with 1 when inspect is above its limits")
    parser.add_argument("--bin", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--mpirun", required=True, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.tensors < FEWEST_TENSORS:
        parser.error(f"--tensors must be at least {FEWEST_TENSORS}, not {options.tensors}")
    if not 4 <= options.files <= options.tensors // 4:
        parser.error(f"--files must be from 4 to a quarter of the tensors, not {options.files}")
    if options.ranks < 1 or options.repeats < 1:
        parser.error("--ranks and --repeats must be at least 1")
    options.directory = options.directory or pathlib.Path(__file__).resolve().parents[2] / "build"
    return options


if __name__ == "__main__":
    parse(["--bin", "", "--mpirun", "", *sys.argv[1:]])
    sys.exit(100)
