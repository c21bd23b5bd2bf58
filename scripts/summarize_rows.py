"""Prints the table of scripts/test from the folders of its rows, the reasons of skips, the failures, and the totals.

Exits with 1 when anything failed; with --strict FILE also when the file does not allow a skip's reason. Each line
of the file is a row, or * for all, and a regular expression for the beginning of the reason; # begins a comment."""

import argparse
import collections
import pathlib
import re
import sys


def read_row(folder):
    counts = [[int(word) for word in line.split()] for line in (folder / "counts").read_text().splitlines()]
    skips = folder / "skips"
    reasons = skips.read_text().splitlines() if skips.exists() else []
    return [sum(column) for column in zip(*counts)], int((folder / "seconds").read_text()), reasons


def read_allowed(path):
    """[(row, pattern)]"""
    allowed = []
    for line in path.read_text().splitlines():
        words = line.split(maxsplit=1)
        if words and not words[0].startswith("#"):
            allowed.append((words[0], re.compile(words[1])))
    return allowed


def is_allowed(row, skip, allowed):
    reason = skip.partition(": ")[2]
    return any(of in ("*", row) and pattern.match(reason) for of, pattern in allowed)


def print_skips(skips):
    """One line for each reason; skips: how often each line "name: reason" was given."""
    of_reason = collections.defaultdict(list)
    for line, count in sorted(skips.items()):
        name, _, reason = line.partition(": ")
        of_reason[reason].append((name, count))
    for reason, names in sorted(of_reason.items()):
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        print(f"skipped {sum(count for _, count in names)} x {reason} ({', '.join(name for name, _ in names[:2])}{more})")


def print_failures(row, folder):
    """The last output of failed tests, or of the row itself if it failed outside a test."""
    failures, log = folder / "failures", folder / "log"
    if failures.exists():
        lines = failures.read_text(errors="replace").splitlines()
    else:
        lines = ["    " + line for line in log.read_text(errors="replace").splitlines()[-20:]] if log.exists() else []
    print(f"failed in row {row}; all of it is in {log}:")
    print("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("rows", nargs="+")
    parser.add_argument("--strict", type=pathlib.Path, metavar="FILE", help="the skips that are allowed")
    options = parser.parse_args()
    totals, failed_rows = [0, 0, 0], []
    reasons, forbidden = collections.Counter(), collections.Counter()
    allowed = read_allowed(options.strict) if options.strict else None
    print(f"{'row':<11} {'passed':>8} {'failed':>8} {'skipped':>8} {'seconds':>8}")
    for row in options.rows:
        counts, seconds, skips = read_row(options.results / row)
        totals = [total + count for total, count in zip(totals, counts)]
        if counts[1]:
            failed_rows.append(row)
        # The same case on other rank counts and in other rows has the same reason.
        skips = [re.sub(r" on rank \d+", "", line) for line in skips]
        reasons.update(skips)
        if allowed is not None:
            forbidden.update(f"{row}: {line}" for line in skips if not is_allowed(row, line, allowed))
        print(f"{row:<11} {counts[0]:>8} {counts[1]:>8} {counts[2]:>8} {seconds:>8}")
    print_skips(reasons)
    for reason, count in sorted(forbidden.items()):
        print(f"must not be skipped here (see {options.strict}): {count} x {reason}")
    for row in failed_rows:
        print_failures(row, options.results / row)
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    sys.exit(1 if totals[1] or forbidden or not totals[0] else 0)


if __name__ == "__main__":
    main()
