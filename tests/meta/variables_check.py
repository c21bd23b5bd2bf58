"""CONTRIBUTING.md lists every environment variable of Cairn's that sources and scripts read, every CMake option,
and every preset, and no others. Names are found where they are read: a literal of C++ or Python that is the whole name,
$NAME in a shell script, ENV{NAME} in CMake, option(), a cache variable or find_program()."""

import json
import re

from tree import run_check, tracked_files

PAGE = "CONTRIBUTING.md"
EXAMPLES = "tests/meta/checks_test.py"  # has sources that are not part of Cairn
KINDS = {  # heading of the table: kind of the names in its first column, in backticks
    "Environment variables": r"CAIRN(?:_[A-Z0-9_]+)?",
    "CMake options": r"CAIRN_[A-Z0-9_]+",
    "Presets": r"[a-z][a-z-]*",
}
LITERAL = re.compile(r"""(["'])(CAIRN_[A-Z0-9_]+)\1""")
SHELL = re.compile(r"\$\{?(CAIRN(?:_[A-Z0-9_]+)?)\b")
CMAKE_ENVIRONMENT = re.compile(r"ENV\{?\s*(CAIRN_[A-Z0-9_]+)")
OPTION = re.compile(r"^\s*(?:option|find_program)\((CAIRN_[A-Z0-9_]+)|^\s*set\((CAIRN_[A-Z0-9_]+) [^)]*\bCACHE\b", re.MULTILINE)
CODE = (".cpp", ".hpp", ".cu", ".cuh", ".h", ".c", ".py")


def is_script(name, text):
    return name.endswith((".sh", ".sbatch")) or re.match(r"#!.*\b(ba)?sh\b", text) is not None


def found_in(root):
    """{heading: {name: the first file that reads it}}"""
    found = {heading: {} for heading in KINDS}
    for name in tracked_files(root):
        if name == EXAMPLES or name.startswith("tests/data/"):
            continue
        content = (root / name).read_bytes()
        if b"CAIRN" not in content:
            continue
        text = content.decode(errors="replace")
        variables, options = [], []
        if name.endswith(CODE) or text.startswith("#!/usr/bin/env python"):
            variables = [match[2] for match in LITERAL.finditer(text)]
        elif name.endswith(("CMakeLists.txt", ".cmake")):
            variables = CMAKE_ENVIRONMENT.findall(text)
            options = [match[1] or match[2] for match in OPTION.finditer(text)]
        elif is_script(name, text):
            variables = SHELL.findall(text)
        for heading, names in (("Environment variables", variables), ("CMake options", options)):
            for one in names:
                found[heading].setdefault(one, name)
    presets = json.loads((root / "CMakePresets.json").read_text())["configurePresets"]
    found["Presets"] = {preset["name"]: "CMakePresets.json" for preset in presets if not preset.get("hidden")}
    return found


def listed_in(page):
    """{heading: names in the first column of the table below it}"""
    listed = {heading: [] for heading in KINDS}
    heading = None
    for line in page.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif heading in listed and line.startswith("| `"):
            listed[heading] += re.findall(rf"`({KINDS[heading]})`", line.split("|")[1])
    return listed


def check(root, _options):
    found, listed = found_in(root), listed_in((root / PAGE).read_text())
    findings = []
    for heading, names in found.items():
        findings += [f"{PAGE}: '{heading}' lacks {name}, which {file} reads" for name, file in sorted(names.items())
                     if name not in listed[heading]]
        findings += [f"{PAGE}: '{heading}' lists {name}, which nothing reads" for name in listed[heading] if name not in names]
        findings += [f"{PAGE}: '{heading}' lists {name} twice" for name in sorted(set(listed[heading]))
                     if listed[heading].count(name) > 1]
        if not names:
            findings.append(f"nothing is found for the table '{heading}'")
    print(f"{sum(map(len, found.values()))} variables, options and presets checked")
    return findings


if __name__ == "__main__":
    run_check(__doc__, check)
