"""No file of the repository names the machine it was written on, or calls itself unfinished."""

import re

from tree import run_check, tracked_files

# Written in pieces, so that this file does not find itself.
MACHINE = [r"\.\./sha" + r"red\b", r"(?<![\w.])/wo" + r"rk/", r"(?<![\w.])/ro" + r"ot/", r"(?<![\w.])/ho" + r"me/\w",
           r"/tmp/ve" + r"nv", r"--(?:extra-)?index" + r"-url", r"(?<![\w.])/opt/whe" + r"els"]
UNFINISHED = [r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b", r"\bXX" + r"X\b", r"not imple" + r"mented", r"\bunimple" + r"mented",
              r"\bplace" + r"holder", r"\bfor n" + r"ow\b", r"\bst" + r"ubbed\b"]


def check(root, _options):
    machine = re.compile("|".join(MACHINE))
    unfinished = re.compile("|".join(UNFINISHED), re.IGNORECASE)
    findings, seen = [], 0
    for name in tracked_files(root):
        content = (root / name).read_bytes()
        if b"\0" in content:
            continue  # binary test data
        seen += 1
        patterns = [machine] if name.startswith("tests/data/") else [machine, unfinished]
        for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1):
            for pattern in patterns:
                match = pattern.search(line)
                if match:
                    findings.append(f"{name}:{number}: '{match[0]}'")
    print(f"{seen} text files checked")
    return findings if seen else ["no text file found"]


if __name__ == "__main__":
    run_check(__doc__, check)
