"""Writes the result of a row of scripts/test --long into the table of tests/long-results.md: one line per row,
the last run. The work done is in lines "[cairn] did NUMBER WHAT" of its tests (ctest.xml also has the output of those
that pass), in the row's file "did", or in its log; numbers of the same WHAT are added."""

import argparse
import collections
import datetime
import pathlib
import re
import subprocess

HEAD = """# Long tests

What `scripts/test --long` did last, row by row; it writes this table itself. These tests take hours and are not part of
continuous integration.

| row | date | commit | passed | failed | skipped | seconds | did |
|---|---|---|---|---|---|---|---|
"""
DID = re.compile(r"\[cairn\] did (\d+) ([^<\n]+?)\s*(?:<|$)", re.MULTILINE)


def commit_of_tree():
    """Revision of the checked-out sources; the table itself may differ."""
    def git(*words):
        return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!tests/long-results.md")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + (" and changes" if changed else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row_results", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    options = parser.parse_args()
    counts = [[int(word) for word in line.split()] for line in (options.row_results / "counts").read_text().splitlines()]
    passed, failed, skipped = (sum(column) for column in zip(*counts))
    done = collections.Counter()
    told = [path for name in ("did", "ctest.xml") if (path := options.row_results / name).exists()]
    for path in told or [options.row_results / "log"]:
        for number, what in DID.findall(path.read_text(errors="replace")):
            done[what] += int(number)
    did = ", ".join(f"{number:,} {what}" for what, number in done.items()) or "nothing that was counted"
    row = options.row_results.name
    seconds = (options.row_results / "seconds").read_text().strip()
    line = (f"| {row} | {datetime.date.today()} | {commit_of_tree()} | {passed} | {failed} | {skipped} | {seconds} | "
            f"{did} |\n")
    old = options.table.read_text().splitlines(keepends=True) if options.table.exists() else HEAD.splitlines(keepends=True)
    kept = [other for other in old if not other.startswith(f"| {row} |")]
    options.table.write_text("".join(kept + [line]))


if __name__ == "__main__":
    main()
