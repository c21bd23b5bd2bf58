"""Prints the table of scripts/test from the folders that its rows left, why tests were skipped, and the totals.
Exit status 1 when anything failed."""

import collections
import pathlib
import re
import sys


def read_row(folder):
    counts = [[int(word) for word in line.split()] for line in (folder / "counts").read_text().splitlines()]
    skips = folder / "skips"
    reasons = skips.read_text().splitlines() if skips.exists() else []
    return [sum(column) for column in zip(*counts)], int((folder / "seconds").read_text()), reasons


def main():
    results, rows = pathlib.Path(sys.argv[1]), sys.argv[2:]
    totals = [0, 0, 0]
    reasons = collections.Counter()
    print(f"{'row':<10} {'passed':>8} {'failed':>8} {'skipped':>8} {'seconds':>8}")
    for row in rows:
        counts, seconds, skips = read_row(results / row)
        totals = [total + count for total, count in zip(totals, counts)]
        # The same case on other rank counts, and in other rows, has the same reason.
        reasons.update(re.sub(r" on rank \d+", "", line) for line in skips)
        print(f"{row:<10} {counts[0]:>8} {counts[1]:>8} {counts[2]:>8} {seconds:>8}")
    for reason, count in sorted(reasons.items()):
        print(f"skipped {count} x {reason}")
    if totals[1]:
        print(f"what failed is in {results}/<row>/log")
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    sys.exit(1 if totals[1] or not totals[0] else 0)


if __name__ == "__main__":
    main()
