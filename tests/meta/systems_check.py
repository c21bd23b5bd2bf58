"""Rules of src/os/README.md for all code in src: threads take no signals of the program,
timed waits use a clock that no user sets, descriptors are not inherited by other programs."""

import re

from tree import run_check, tracked_files

# (pattern, why it is wrong, files that may use it)
RULES = [
    (re.compile(r"std::j?thread\s*[({]|\bthread_\(\["), "a thread that takes signals; os::start_thread()",
     ("src/os/process.hpp", "src/os/interrupt.cpp")),
    (re.compile(r"\bsystem_clock\b"), "a clock that people set; std::chrono::steady_clock",
     ("src/life/schedule.cpp",)),  # the time limit of a job is a time of day
    (re.compile(r"(?<![\w>])::(?:open|openat|memfd_create)\((?![^;]*CLOEXEC)[^;]*;"), "a descriptor that other programs get; O_CLOEXEC",
     ()),
]
TIMED_WAIT = re.compile(r"\.wait_(?:for|until)\(lock")


def check(root, _options):
    findings, seen = [], 0
    for name in tracked_files(root):
        if not name.startswith("src/") or not name.endswith((".cpp", ".hpp", ".cu")):
            continue
        seen += 1
        text = re.sub(r"//.*", "", (root / name).read_text())
        for pattern, why, allowed in RULES:
            if name not in allowed:
                findings += [f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {why}" for found in pattern.finditer(text)]
        own_header = root / (name.removesuffix(".cpp") + ".hpp")
        declared = text + (own_header.read_text() if own_header.is_file() else "")
        if "std::condition_variable" in declared:
            findings += [f"{name}:{text.count(chr(10), 0, found.start()) + 1}: a timed wait of std::condition_variable; "
                         "os::Condition" for found in TIMED_WAIT.finditer(text)]
    print(f"{seen} sources checked")
    return findings if seen else ["no source found"]


if __name__ == "__main__":
    run_check(__doc__, check)
