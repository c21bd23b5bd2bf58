"""Helpers for the checks of this folder: the files of a source tree, and the report of findings."""

import argparse
import pathlib
import subprocess
import sys


def tracked_files(root):
    """Paths relative to `root` of every file that git does not ignore; without git, of every file outside build/."""
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={root}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, check=False)
    if listing.returncode == 0:
        names = [name for name in listing.stdout.decode().split("\0") if name]
        return sorted(name for name in set(names) if (root / name).is_file())
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if path.parts[0] not in ("build", ".git"))


def run_check(description, check, **arguments):
    """Runs check(root, options): a list of findings, one line each. Exit status 1 when there is any."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--source", type=pathlib.Path, required=True, help="root of the source tree")
    for name, text in arguments.items():
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True, help=text)
    options = parser.parse_args()
    findings = check(options.source.resolve(), options)
    for finding in findings:
        print(finding)
    sys.exit(1 if findings else 0)
