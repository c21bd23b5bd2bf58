"""Every test source is part of a test: *_test.cpp is compiled into a program that ctest starts, *_test.py is in a ctest
command. The build folder is the source (compile_commands.json, ctest --show-only)."""

import json
import pathlib
import re
import subprocess

from tree import run_check, tracked_files


def ctest_commands(build):
    """Words of all commands that ctest would run."""
    listing = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, capture_output=True, check=True, text=True)
    return {word for test in json.loads(listing.stdout)["tests"] for word in test.get("command", [])}


def programs_by_source(build):
    """{source file: names of the targets it is compiled into}."""
    programs = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        output = entry.get("output") or re.search(r" -o (\S+)", entry["command"])[1]
        target = re.search(r"CMakeFiles/([^/]+)\.dir/", output)
        programs.setdefault(pathlib.Path(entry["file"]).resolve(), set()).add(target[1])
    return programs


def check(root, options):
    commands = ctest_commands(options.build)
    started = {pathlib.Path(word).name for word in commands}
    programs = programs_by_source(options.build)
    findings, seen = [], 0
    for name in tracked_files(root):
        path = (root / name).resolve()
        if name.endswith("_test.cpp"):
            seen += 1
            targets = programs.get(path, set())
            if not targets:
                findings.append(f"{name}: compiled into no target")
            elif not targets & started:
                findings.append(f"{name}: part of {', '.join(sorted(targets))}, which no ctest entry starts")
        elif name.endswith("_test.py"):
            seen += 1
            if str(path) not in commands:
                findings.append(f"{name}: in the command of no ctest entry")
    print(f"{seen} test sources checked")
    return findings if seen else ["no test source found"]


if __name__ == "__main__":
    run_check(__doc__, check, build="a configured build folder")
