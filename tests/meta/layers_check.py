"""No include points up or sideways: the table of src/README.md, which is read here, says which layer may include which.

Checked as well: CMake's LAYERS of each layer obey the same table; layers that the table calls pure
include no header that opens files or talks to other processes; include/cairn includes nothing from src,
and of other libraries only MPI and the standard ones; and the walks of src/README.md, lists of "N.
`function` (`layer/file.cpp`)", have at most ten calls, each in that file, and called in the file of an earlier one.
"""

import re

from tree import run_check, tracked_files

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[>"]', re.MULTILINE)
SOURCES = (".hpp", ".cpp", ".h", ".c", ".cu", ".cuh")
PUBLIC = re.compile(r"^([a-z_0-9]+|std[a-z]+\.h|mpi\.h)$")
IMPURE = re.compile(r"^(mpi\.h|fstream|fcntl\.h|unistd\.h|cstdio|stdio\.h|sys/.*|hdf5\.h|liburing\.h)$")


def read_table(text):
    """Rows of the layer table: {layer: (allowed layers, is pure)}, in order."""
    table = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        layer = re.fullmatch(r"`(\w+)`", cells[0])
        if not line.startswith("|") or len(cells) != 3 or not layer:
            continue
        table[layer[1]] = (allowed_layers(cells[2], table), bool(re.search(r"\bpure\b", cells[1])))
    return table


def allowed_layers(cell, above):
    if cell in ("–", "-", ""):
        return set()
    if cell == "all above":
        return set(above)
    allowed = set()
    below = re.fullmatch(r"(\w+) and below", cell)
    for name in [below[1]] if below else re.split(r"[\s,]+", cell):
        if name not in above:
            raise SystemExit(f"src/README.md: '{name}' in '{cell}' is not a layer of a row above")
        allowed.add(name)
        if below:
            allowed |= above[name][0]
    return allowed


def check_file(name, text, table):
    findings = []
    parts = name.split("/")
    layer = parts[1] if parts[0] == "src" else None
    for match in INCLUDE.finditer(text):
        quote, target = match.groups()
        where = f"{name}:{text.count(chr(10), 0, match.start(2)) + 1}"
        head = target.split("/")[0] if "/" in target else None
        if quote == "<":
            if layer and table[layer][1] and IMPURE.match(target):
                findings.append(f"{where}: <{target}> in {layer}, which is pure")
            elif not layer and not PUBLIC.match(target):
                findings.append(f"{where}: <{target}>: include/cairn needs no library but MPI")
        elif head == "cairn":
            continue
        elif head is None or ".." in target.split("/"):
            findings.append(f'{where}: "{target}": write the layer in front ("{layer or "cairn"}/...")')
        elif layer is None:
            findings.append(f'{where}: "{target}": include/cairn may include only "cairn/..."')
        elif head in table and head != layer and head not in table[layer][0]:
            allowed = " ".join(sorted(table[layer][0])) or "nothing"
            findings.append(f'{where}: "{target}": {layer} may not include {head} (only {allowed})')
    return findings


def check_cmake(name, text, table):
    findings = []
    for call in re.finditer(r"cairn_layer\(([^)]*)\)", text):
        words = re.sub(r"#.*", "", call[1]).split()
        layer = words[words.index("NAME") + 1]
        section = None
        for word in words:
            if word in ("NAME", "SOURCES", "LAYERS", "LIBS", "PRIVATE_LIBS"):
                section = word
            elif section == "LAYERS" and word not in table.get(layer, (set(),))[0]:
                findings.append(f"{name}: LAYERS {word}: {layer} may not use {word}")
    return findings


STEP = re.compile(r"^(\d+)\. `([\w:]+)` \(`([\w/.]+)`\)", re.MULTILINE)
MOST_CALLS = 10


def check_walks(root, text):
    findings, before = [], ""
    for number, function, file in STEP.findall(text):
        where = f"src/README.md, walk: {number}. `{function}`"
        path = root / "src" / file
        source = path.read_text() if path.is_file() else ""
        call = re.compile(rf"\b{function.split('::')[-1]}\(")
        if int(number) > MOST_CALLS:
            findings.append(f"{where}: a walk has at most {MOST_CALLS} calls")
        if not source:
            findings.append(f"{where}: there is no src/{file}")
        elif not re.search(rf"\b{re.escape(function)}\(", source):
            findings.append(f"{where} is not in src/{file}")
        if int(number) == 1:
            before = ""
        elif not call.search(before):
            findings.append(f"{where} is not called in the file of an earlier step")
        before += source
    return findings


def check(root, _options):
    text = (root / "src/README.md").read_text()
    table = read_table(text)
    if not table:
        return ["src/README.md: no table of layers found"]
    findings, seen = check_walks(root, text), 0
    for name in tracked_files(root):
        parts = name.split("/")
        if parts[0] == "src" and len(parts) > 2 and parts[1] not in table:
            findings.append(f"{name}: folder {parts[1]} is not in the table of src/README.md")
        elif (parts[0] == "src" and len(parts) > 2 or name.startswith("include/")) and name.endswith(SOURCES):
            seen += 1
            findings += check_file(name, (root / name).read_text(), table)
        elif parts[0] == "src" and parts[-1] == "CMakeLists.txt":
            findings += check_cmake(name, (root / name).read_text(), table)
    print(f"{seen} files of {len(table)} layers checked")
    return findings if seen else ["no source file found"]


if __name__ == "__main__":
    run_check(__doc__, check)
