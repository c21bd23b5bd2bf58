"""A new user's first steps in a fresh Debian: scripts/demo twice, and in another one the steps of the container file.

Needs root, mmdebstrap and a network. The first demo may take 450 seconds of processor time, packages and compiler
included: half of it is the wall time on two otherwise idle cores. Prints "[cairn] did ..." lines for
tests/long-results.md."""

import argparse
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MOST_PROCESSOR_S = 450
SOURCES = [pathlib.Path("/etc/apt/sources.list.d/debian.sources"), pathlib.Path("/etc/apt/sources.list")]

# The mounts belong to this shell and end with it.
ENTER = """
mount --bind /proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" || exit
exec chroot "$0" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
  DEBIAN_FRONTEND=noninteractive sh -c "$1"
"""


class Debian:
    def __init__(self, folder):
        self.folder = folder
        self.place = "/"
        release = pathlib.Path("/etc/os-release").read_text()
        here = [path for path in SOURCES if "VERSION_CODENAME=bookworm" in release and path.exists()]
        subprocess.run(["mmdebstrap", "--quiet", "--variant=apt", "bookworm", folder, *here[:1]], check=True)
        shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
        # Every machine has these entries; without them Open MPI waits for name servers.
        (folder / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n")

    def run(self, command):
        """Returns the seconds of processor time of all processes."""
        print(f"\n-- in {self.place}: {command}", flush=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["unshare", "--mount", "sh", "-c", ENTER, self.folder, f"cd {self.place} && {command}"],
                       check=True, stdin=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"-- {seconds:.0f} s of processor time", flush=True)
        return seconds

    def copy_sources(self, to):
        place = self.folder / to.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        files = subprocess.run(["git", "-c", f"safe.directory={SOURCE}", "ls-files", "-z", "--cached", "--others",
                                "--exclude-standard"], cwd=SOURCE, capture_output=True, check=True).stdout
        pack = subprocess.run(["tar", "--null", "--ignore-failed-read", "-cT", "-"], cwd=SOURCE, input=files,
                              capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", place], input=pack, check=True)


def instructions(path):
    """(word, rest) of every instruction of a container file, continued lines joined."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line.strip():
            word, rest = line.split(maxsplit=1)
            yield word, rest


def run_container_file(debian, path):
    ran = 0
    for word, rest in instructions(path):
        if word == "RUN":
            debian.run(rest)
            ran += 1
        elif word == "WORKDIR":
            debian.place = rest
        elif (word, rest) == ("COPY", ". ."):
            debian.copy_sources(debian.place)
        elif word != "FROM" or not rest.endswith("/debian:bookworm"):
            raise SystemExit(f"{path}: cannot do here: {word} {rest}")
    print(f"[cairn] did {ran} RUN lines of the container file", flush=True)


def run_demo(debian):
    """Runs in a tree and with a home of its own: no earlier build is of use."""
    debian.copy_sources("/demo")
    debian.place = "/demo"
    first, second = debian.run("CCACHE_DIR=/demo/ccache scripts/demo"), debian.run("CCACHE_DIR=/demo/ccache scripts/demo")
    print(f"[cairn] did {first:.0f} s of processor time for the first scripts/demo")
    print(f"[cairn] did {second:.0f} s of processor time for the second", flush=True)
    if first > MOST_PROCESSOR_S:
        raise SystemExit(f"the first scripts/demo took {first:.0f} s of processor time, more than {MOST_PROCESSOR_S}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("container_file", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, help="where to make the systems; by default where temporary files are")
    options = parser.parse_args()
    for what, run in ("demo", run_demo), ("container", lambda debian: run_container_file(debian, options.container_file)):
        with tempfile.TemporaryDirectory(dir=options.folder, prefix=f"cairn-{what}-", ignore_cleanup_errors=True) as folder:
            run(Debian(pathlib.Path(folder) / "root"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
