"""Runs clang-tidy on source files, side by side, and prints what it finds. Exit status 1 when it finds anything.

    tidy.py --build build/dev --jobs 2 FILE...

A file that was good is not looked at again until what the compiler sees of it changes: clang-tidy takes 3 to 7 s of processor
time for a file, its preprocessor about one. Good verdicts are kept as empty files in ~/.cache/cairn-tidy (XDG_CACHE_HOME),
named after a digest of the preprocessed file with its comments, of .clang-tidy, and of the version of clang-tidy."""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
KEPT_S = 60 * 24 * 3600
EXTRA = "--extra-arg=-Wno-unknown-warning-option"


def compile_commands(build):
    """{source file: (directory, words of its command from the compiler on)}"""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        compiler = next(i for i, word in enumerate(words) if pathlib.Path(word).name in ("c++", "g++", "clang++"))
        commands[pathlib.Path(entry["file"]).resolve()] = (entry["directory"], words[compiler + 1:])
    return commands


def preprocessed(directory, words):
    """What clang sees of the file, without the path of this tree; nothing when it cannot say."""
    words = list(words)
    if "-o" in words:
        at = words.index("-o")
        del words[at:at + 2]
    done = subprocess.run(["clang++", "-E", "-C", "-Wno-everything", *words], cwd=directory, capture_output=True, check=False)
    return done.stdout.replace(str(ROOT).encode(), b".") if done.returncode == 0 else None


def look_at(file, build, command, basis, cache):
    """(what clang-tidy says of the file, or nothing when it is good; whether the verdict was there already)"""
    text = preprocessed(*command)
    verdict = cache / hashlib.sha256(basis + text).hexdigest() if text else None
    if verdict and verdict.exists():
        verdict.touch()
        return "", True
    done = subprocess.run(["clang-tidy", "-p", str(build), "--quiet", EXTRA, str(file)], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        return done.stdout + done.stderr, False
    if verdict:
        verdict.touch()
    return "", False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "cairn-tidy"
    cache.mkdir(parents=True, exist_ok=True)
    for old in cache.iterdir():
        if time.time() - old.stat().st_mtime > KEPT_S:
            old.unlink(missing_ok=True)
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    basis = version + (ROOT / ".clang-tidy").read_bytes() + EXTRA.encode()
    commands = compile_commands(options.build)
    files = [file for file in options.files if file.resolve() in commands]
    for file in options.files:
        if file not in files:
            print(f"{file} is not compiled in {options.build}")
    wrong, known, said = 0, 0, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = [pool.submit(look_at, file, options.build, commands[file.resolve()], basis, cache)
                   for file in files]
        for number, result in enumerate(concurrent.futures.as_completed(results), 1):
            text, was_known = result.result()
            known += was_known
            if text:
                wrong += 1
                print(text, flush=True)
            if time.monotonic() - said >= 30:
                said = time.monotonic()
                print(f"clang-tidy: {number} of {len(results)} files", flush=True)
    print(f"{len(files)} files, {known} of them known to be good, {wrong} with findings")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
