"""Scripts can be started as checked out: a file with a #! line in scripts/, .ci/ or slurm/ is executable and bash can
parse it; a file without one (sourced, imported) is not executable. The two commands of the README exist."""

import os
import subprocess

from tree import run_check, tracked_files

COMMANDS = ("scripts/demo", "scripts/test", ".ci/run")


def check(root, _options):
    names = [name for name in tracked_files(root) if name.startswith(("scripts/", ".ci/", "slurm/"))]
    findings = [f"{name} is missing" for name in COMMANDS if name not in names]
    for name in names:
        path = root / name
        first = path.read_text().splitlines()[:1]
        starts = bool(first) and first[0].startswith("#!")
        if starts != os.access(path, os.X_OK):
            findings.append(f"{name}: {'has a #! line but is not executable' if starts else 'is executable without #!'}")
        if starts and "bash" in first[0] or name.endswith(".sh"):
            parsed = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
            if parsed.returncode != 0:
                findings.append(f"{name}: {parsed.stderr.strip().splitlines()[0]}")
    print(f"{len(names)} scripts checked")
    return findings


if __name__ == "__main__":
    run_check(__doc__, check)
