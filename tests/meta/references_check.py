"""Files that comments and pages name exist: sources (engine.hpp, io/engine.hpp), folders and files below them (src/io),
layer and stem in backticks (`io/engine`), links of pages, and tests that pages of tests/ name (`Suite.Name`,
`Class.test_name`). {a,b} and * are read as a shell does."""

import fnmatch
import io
import itertools
import re
import tokenize

from tree import run_check, tracked_files

SOURCES = ("hpp", "cpp", "cu", "cuh", "py", "sh", "sbatch", "cmake", "md")
COMMENT = {"hpp": "//", "cpp": "//", "h": "//", "cu": "//", "cuh": "//", "c": "//", "sh": "#", "sbatch": "#",
           "cmake": "#", "CMakeLists.txt": "#"}
FOLDERS = ("src", "include", "tests", "bench", "apps", "scripts", "slurm", "cmake", "examples")
# Other projects' files, and names that stand for any file.
OTHERS = ["modeling_*.py", "a.cpp", "a_test.cpp", "layer/file.*", "NAME_entry.cpp"]

PART = r"[\w.*{},-]"
SOURCE = re.compile(rf"(?<![\w/.<>-])(?:{PART}+/)*[\w*{{}},-]+\.(?:{'|'.join(SOURCES)}|\{{[a-z,]+}})(?![\w/-]|\.\w)")
FOLDER = re.compile(rf"(?<![\w/.<>-])(?:{'|'.join(FOLDERS)})(?:/{PART}*[\w*}}])+")
STEM = re.compile(r"`([a-z0-9]+/[a-z0-9_]+)`")
TEST = re.compile(r"`([A-Z]\w*\.(?:[A-Z]|test_)\w+)`")
CPP_TEST = re.compile(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.MULTILINE)
PYTHON_TEST = re.compile(r"^(?:class (\w+)|    def (test_\w+))", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)\s]*)?\)")


def texts(name, content):
    """(line number, text) for human readers: all of a page, the comments of a source."""
    kind = name.rsplit("/", 1)[-1]
    kind = kind if kind in COMMENT else kind.rsplit(".", 1)[-1]
    lines = content.splitlines()
    if kind == "md":
        yield from enumerate(lines, start=1)
    elif kind == "py":
        for token in tokenize.generate_tokens(io.StringIO(content).readline):
            if token.type == tokenize.COMMENT or token.type == tokenize.STRING and token.string.startswith('"""'):
                yield from enumerate(token.string.splitlines(), start=token.start[0])
    elif kind in COMMENT:
        for number, line in enumerate(lines, start=1):
            _, mark, comment = line.partition(COMMENT[kind])
            if mark:
                yield number, comment


def spread(name):
    """The names that {a,b} expands to."""
    parts = re.split(r"\{([^{}]*)\}", name)
    choices = [part.split(",") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*choices)]


class Names:
    def __init__(self, files):
        paths = set(files)
        for file in files:
            parts = file.split("/")
            paths.update("/".join(parts[:count]) for count in range(1, len(parts)))
        # "io/engine.hpp" and "engine.hpp" name src/io/engine.hpp: every tail of a path names it.
        split = [path.split("/") for path in paths]
        self.ends = {"/".join(parts[first:]) for parts in split for first in range(len(parts))}
        self.layers = {path.split("/")[1] for path in paths if re.fullmatch("src/[^/.]+", path)}
        self.stems = {path.removeprefix("src/").rsplit(".", 1)[0] for path in paths if path.startswith("src/")}

    def has(self, name):
        return name in self.ends or "*" in name and any(fnmatch.fnmatch(end, name) for end in self.ends)

    def lacks_stem(self, name):
        return name.split("/")[0] in self.layers and name not in self.stems and name not in self.ends


def tests_of(root, files):
    """"Suite.Name" and "Class.test_name" of all tests."""
    found = set()
    for file in files:
        if file.startswith("tests/") and file.endswith("_test.py"):
            suite = ""
            for match in PYTHON_TEST.finditer((root / file).read_text()):
                suite = match[1] or suite
                found.add(f"{suite}.{match[2]}")
        elif file.startswith("tests/") and file.endswith(".cpp"):
            found.update(".".join(match.groups()) for match in CPP_TEST.finditer((root / file).read_text()))
    return found


def check(root, _options):
    files = tracked_files(root)
    names = Names(files)
    tests = tests_of(root, files)
    findings, seen = [], 0
    for file in files:
        if file.startswith("tests/data/") or file.startswith("bench/results/"):
            continue  # other projects' texts, and records of measurements
        if not (file.endswith(tuple(f".{kind}" for kind in SOURCES + ("h", "c"))) or file.endswith("CMakeLists.txt")):
            continue
        for number, text in texts(file, (root / file).read_text()):
            found = {match[0] for pattern in (SOURCE, FOLDER) for match in pattern.finditer(text)}
            for name in sorted(set(itertools.chain.from_iterable(map(spread, found)))):
                if any(fnmatch.fnmatchcase(name, other) for other in OTHERS):
                    continue
                seen += 1
                if not names.has(name):
                    findings.append(f"{file}:{number}: there is no {name}")
            findings += [f"{file}:{number}: there is no {name}" for name in STEM.findall(text)
                         if names.lacks_stem(name)]
            for test in TEST.findall(text) if file.startswith("tests/") and file.endswith(".md") else ():
                seen += 1
                if test not in tests:
                    findings.append(f"{file}:{number}: there is no test {test}")
            for match in LINK.finditer(text) if file.endswith(".md") else ():
                seen += 1
                if not (root / file).parent.joinpath(match[1]).exists():
                    findings.append(f"{file}:{number}: the link to {match[1]} leads nowhere")
    print(f"{seen} names checked")
    return findings if seen else ["no name of a file found"]


if __name__ == "__main__":
    run_check(__doc__, check)
