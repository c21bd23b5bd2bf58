"""Exits with 0 when this Python has exactly the versions that a requirements file pins;
otherwise names the missing ones."""

import importlib.metadata
import sys


def main():
    wrong = []
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            name, pinned, version = line.split("#")[0].strip().partition("==")
            if not pinned:
                continue
            try:
                found = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found = "none"
            if found.split("+")[0] != version:
                wrong.append(f"{name}: {version} is needed, {found} is there")
    print("\n".join(wrong) or "as pinned")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
