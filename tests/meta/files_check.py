"""Files are small and describe themselves: no source file has over 600 lines (those over 400 are listed),
headers begin with a comment and are guarded by #pragma once."""

from tree import run_check, tracked_files

SOURCES = (".hpp", ".cpp", ".h", ".c", ".cu", ".cuh", ".py")
LARGEST_LINES = 600
LARGE_LINES = 400


def check(root, _options):
    findings, seen = [], 0
    for name in tracked_files(root):
        if not name.endswith(SOURCES) or name.startswith("tests/data/"):
            continue
        seen += 1
        lines = (root / name).read_text().splitlines()
        if len(lines) > LARGEST_LINES:
            findings.append(f"{name}: {len(lines)} lines; split it by what it does (at most {LARGEST_LINES})")
        elif len(lines) > LARGE_LINES:
            print(f"{name}: {len(lines)} lines, over {LARGE_LINES}")
        if name.endswith((".hpp", ".h", ".cuh")):
            if not lines or not lines[0].startswith(("//", "/*")):
                findings.append(f"{name}: does not begin with a comment that says what it is")
            if "#pragma once" not in lines and not any(line.startswith("#ifndef") for line in lines):
                findings.append(f"{name}: no #pragma once")
    print(f"{seen} files checked")
    return findings if seen else ["no source file found"]


if __name__ == "__main__":
    run_check(__doc__, check)
