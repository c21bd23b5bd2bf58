"""Runs clang-tidy on source files, in parallel, and prints its findings. Exits with 1 when there are any.

    tidy.py --build build/dev --jobs 2 FILE...

Nearly all of its time goes to the headers of the standard library, so several files of a folder are checked
as one source that includes them. If two of them use one name for different things, they cannot be one source,
and each half is tried separately.

Good files are not checked again until their preprocessed text changes. Verdicts are kept as small files
in ~/.cache/cairn-tidy (XDG_CACHE_HOME), named after a digest of the preprocessed files with their comments,
of .clang-tidy, and of the version of clang-tidy."""

import argparse
import concurrent.futures
import hashlib
import itertools
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
AT_ONCE = 8  # files; more clash more often
KEPT_S = 60 * 24 * 3600
WARNINGS = ["-Wno-everything", "-Wno-unknown-warning-option"]  # the compilers report these
GOOD, CLASH = "good", "clash"


def compile_commands(build):
    """{source file: (directory, words of its command between the compiler and the names of files)}"""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        compiler = next(i for i, word in enumerate(words) if pathlib.Path(word).name in ("c++", "g++", "clang++"))
        output = words.index("-o")
        commands[pathlib.Path(entry["file"]).resolve()] = (entry["directory"], tuple(words[compiler + 1:output]))
    return commands


class Tidy:
    def __init__(self, build):
        self.cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "cairn-tidy"
        self.cache.mkdir(parents=True, exist_ok=True)
        for old in self.cache.iterdir():
            if time.time() - old.stat().st_mtime > KEPT_S:
                old.unlink(missing_ok=True)
        version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
        self.basis = version + (ROOT / ".clang-tidy").read_bytes() + " ".join(WARNINGS).encode()
        self.sources = build / "tidy"
        self.sources.mkdir(exist_ok=True)

    def source_of(self, files):
        """A single file itself, or a source that includes all of them."""
        if len(files) == 1:
            return files[0]
        text = "".join(f'#include "{file}"\n' for file in files)
        source = self.sources / (hashlib.sha256(text.encode()).hexdigest()[:16] + ".cpp")
        source.write_text(text)
        return source.resolve()

    def verdict_file(self, source, directory, words):
        """The file of the verdict; nothing when the compiler cannot preprocess the source."""
        done = subprocess.run(["clang++", "-E", "-C", "-Wno-everything", *words, str(source)], cwd=directory,
                              capture_output=True, check=False)
        if done.returncode != 0:
            return None
        seen = done.stdout.replace(str(self.sources.resolve()).encode(), b"").replace(str(ROOT).encode(), b".")
        return self.cache / hashlib.sha256(self.basis + seen).hexdigest()

    def look_at(self, files, command):
        """(clang-tidy's findings, or nothing for good files; the number of files already known to be good)"""
        directory, words = command
        source = self.source_of(files)
        kept = self.verdict_file(source, directory, words)
        verdict = kept.read_text() if kept and kept.exists() else None
        said = ""
        if verdict is None:
            done = subprocess.run(["clang-tidy", "--quiet", str(source), "--", *words, *WARNINGS], cwd=directory,
                                  capture_output=True, text=True, check=False)
            said = done.stdout + done.stderr
            verdict = GOOD if done.returncode == 0 else CLASH if "clang-diagnostic-error" in said else None
            if len(files) == 1 and verdict == CLASH:
                verdict = None  # it does not compile
            if kept and verdict:
                kept.write_text(verdict)
        elif kept:
            kept.touch()
            if verdict == GOOD:
                return "", len(files)
        if verdict == GOOD:
            return "", 0
        if verdict is None:
            return said, 0
        half = len(files) // 2
        first, known_first = self.look_at(files[:half], command)
        second, known_second = self.look_at(files[half:], command)
        return first + second, known_first + known_second


def groups_of(files, commands):
    """Groups of files of one folder that are compiled alike."""
    def key(file):
        return str(file.parent), commands[file]
    for _, alike in itertools.groupby(sorted(files, key=lambda file: (key(file), file.name)), key=key):
        alike = list(alike)
        for at in range(0, len(alike), AT_ONCE):
            yield alike[at:at + AT_ONCE]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    tidy = Tidy(options.build)
    commands = compile_commands(options.build)
    files = [file.resolve() for file in options.files if file.resolve() in commands]
    for file in options.files:
        if file.resolve() not in commands:
            print(f"{file} is not compiled in {options.build}")
    wrong, known, looked_at, said = 0, 0, 0, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = {pool.submit(tidy.look_at, group, commands[group[0]]): group for group in groups_of(files, commands)}
        for result in concurrent.futures.as_completed(results):
            text, was_known = result.result()
            known += was_known
            looked_at += len(results[result])
            if text:
                wrong += 1
                print(text, flush=True)
            if time.monotonic() - said >= 30:
                said = time.monotonic()
                print(f"clang-tidy: {looked_at} of {len(files)} files", flush=True)
    print(f"{len(files)} files, {known} of them known to be good" + (", with findings" if wrong else ""))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
