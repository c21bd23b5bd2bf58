"""The machine of a result: never its name, always the properties on which the figures depend."""

import importlib.metadata
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _first_value(path, key):
    try:
        with open(path, encoding="utf-8") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "unknown")
    except OSError:
        return "unknown"


def _git(*arguments):
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _operating_system():
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return "unknown"


def revision():
    """Short hash of the commit, with -modified when the sources differ from it; "unknown" outside git."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    if commit is None:
        return "unknown"
    return commit + ("-modified" if _git("status", "--porcelain", "--untracked-files=no") else "")


def describe(launcher):
    versions = launcher.document(1, "cairn_peer_program", "versions")
    return {
        "processor": _first_value("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "operating_system": _operating_system(),
        "kernel": platform.release(),
        "nodes": 1,
        "load_average_at_start": round(os.getloadavg()[0], 2),
        "versions": {"cairn": revision(), "python": platform.python_version(),
                     **{name: importlib.metadata.version(name) for name in ("torch", "safetensors", "numpy")},
                     "mpi": versions["mpi"].split(",")[0], "hdf5": versions["hdf5"] or None},
    }
