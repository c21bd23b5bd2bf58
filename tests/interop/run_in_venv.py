"""Runs a script with the Python that has the packages of requirements.txt: CAIRN_VENV,
or build/venv of the source tree. Exits with 77 (skipped) and the reason when they are not there."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    script = pathlib.Path(sys.argv[1])
    venv = pathlib.Path(os.environ.get("CAIRN_VENV") or ROOT / "build/venv")
    python = venv / "bin/python"
    reason = f"no {python}; scripts/test installs it"
    if python.exists():
        versions = subprocess.run(
            [python, ROOT / "scripts/check_requirements.py", ROOT / "tests/interop/requirements.txt"],
            capture_output=True, text=True, check=False)
        if versions.returncode == 0:
            os.execv(python, [str(python), *sys.argv[1:]])
        reason = f"{venv}: {(versions.stdout or versions.stderr).strip().splitlines()[0]}"
    print(f"[cairn] skipped {script.stem}: {reason}")
    sys.exit(77)


if __name__ == "__main__":
    main()
