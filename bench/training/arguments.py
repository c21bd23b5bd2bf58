"""Arguments of bench/training/run. Needs no packages, so that --help and wrong arguments are answered before any are
installed; as a program it exits with 100 when the arguments are good.
"""

import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUIRED = ("q8", "q4")  # these decide the verdict; others are for comparison
LINEAGES = (*REQUIRED, "f32", "paddle-o1", "paddle-o2")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench/training/run",
                                     description="Trains through quantised checkpoints, and without.")
    parser.add_argument("--lineages", default=",".join(REQUIRED),
                        help=f"comma-separated, of {', '.join(LINEAGES)} [{','.join(REQUIRED)}]")
    parser.add_argument("--quick", action="store_true", help="20 steps, 2 resumes: shows that everything runs")
    parser.add_argument("--directory", type=pathlib.Path, default=ROOT / "build",
                        help="where checkpoints are written and removed [build]")
    parser.add_argument("--output", type=pathlib.Path, help="write the report as JSON to this file, the plot beside it")
    parser.add_argument("--results", action="store_true", help="write bench/results/training-<date>.json and .svg")
    parser.add_argument("--lock", type=pathlib.Path,
                        help="take turns by flock(1)'s lock on this file, for machines that others measure on")
    parser.add_argument("--bin", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--mpirun", required=True, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.lineages = options.lineages.split(",")
    unknown = set(options.lineages) - set(LINEAGES)
    if unknown or not set(REQUIRED) <= set(options.lineages):
        parser.error(f"--lineages: {','.join(REQUIRED)} and any of {', '.join(LINEAGES[len(REQUIRED):])}")
    return options


if __name__ == "__main__":
    parse(["--bin", "", "--mpirun", "", *sys.argv[1:]])
    sys.exit(100)
