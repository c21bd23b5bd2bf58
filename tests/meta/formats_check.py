"""A system whose checkpoints Cairn reads or writes is named in its own folder of src/interop, in the codecs that are its own, and where
these are registered: what all systems share does not know any of them."""

import re

from tree import run_check, tracked_files

# (name, the files of src that may have it)
SYSTEMS = [
    ("paddle", r"interop/paddle/|interop/(dialects\.cpp|CMakeLists\.txt|README\.md)|"
               r"quant/(paddle_|device_codec|device_kernels|tile_kernels|codec\.cpp|CMakeLists\.txt|README\.md)|"
               r"format/FORMAT\.md|cli/(README|JSON)\.md|codes/README\.md"),
    ("mindspore", r"interop/mindspore/|interop/(dialects\.cpp|CMakeLists\.txt|README\.md)"),
]


def check(root, _options):
    findings, seen = [], 0
    for path in tracked_files(root):
        if not path.startswith("src/"):
            continue
        seen += 1
        text = (root / path).read_text()
        for name, places in SYSTEMS:
            if re.match(places, path.removeprefix("src/")):
                continue
            findings += [f"{path}:{text.count(chr(10), 0, found.start()) + 1}: names {name}, which only its own files may"
                         for found in re.finditer(name, text, re.IGNORECASE)]
    print(f"{seen} files of src checked")
    return findings if seen else ["no file of src found"]


if __name__ == "__main__":
    run_check(__doc__, check)
