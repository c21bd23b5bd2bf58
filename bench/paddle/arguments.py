"""Arguments of bench/paddle/run. Needs no packages; as a program it exits with 100 when the arguments are good."""

import argparse
import pathlib
import re
import sys

UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}
SMALLEST = 64 << 20


def size_of(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(MiB|GiB)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text}: give a size in MiB or GiB")
    return int(float(match[1]) * UNITS[match[2]])


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench/paddle/run",
                                     description="Measures how fast checkpoints of PaddlePaddle convert, beside Cairn's own.")
    parser.add_argument("--directory", type=pathlib.Path, help="where to write: some six times the size [build]")
    parser.add_argument("--size", type=size_of, default=1 << 30, help="of the O0 checkpoint, about [1GiB]")
    parser.add_argument("--ranks", default="1,4", help="how many convert [1,4]")
    parser.add_argument("--repeats", type=int, default=5, help="rounds [5]")
    parser.add_argument("--memory", type=size_of, default=256 << 20, help="budget of a rank [256MiB]")
    parser.add_argument("--output", type=pathlib.Path, help="write the figures as JSON to this file")
    parser.add_argument("--check", action="store_true", help="exit with 1 when O0 to Hugging Face files is below 80 %% of own")
    parser.add_argument("--bin", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--mpirun", required=True, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", options.ranks):
        parser.error(f"--ranks is a list of numbers like 1,4, not {options.ranks}")
    options.ranks = [int(ranks) for ranks in options.ranks.split(",")]
    if options.size < SMALLEST:
        parser.error("--size must be at least 64MiB")
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    options.directory = options.directory or pathlib.Path(__file__).resolve().parents[2] / "build"
    return options


if __name__ == "__main__":
    parse(["--bin", "", "--mpirun", "", *sys.argv[1:]])
    sys.exit(100)
