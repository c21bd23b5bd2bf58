"""Ranks that save again and again (rank_saver.cpp), as a test sees them."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

END_S = 300  # for the remaining ranks: the limit, and a margin for a busy machine
START_S = 300


class Job:
    """`how` is save or async; `limit_s` is how long a rank waits for another. With a lease time of its own, in seconds,
    the job waits as long as necessary for a saver that was stopped."""

    def __init__(self, program, ranks, root, how, folder, limit_s, survive=False, lease_s=None, faults=""):
        launcher = os.environ["CAIRN_MPIEXEC"].split()
        # With recovery, the launcher leaves the other ranks alone, and Cairn decides what they do; without it, the launcher does.
        recovery = ["--enable-recovery"] if survive else []
        self.ranks, self.pid_folder = ranks, pathlib.Path(tempfile.mkdtemp(dir=folder))
        command = [*launcher[:1], *recovery, *launcher[1:], str(ranks), program, root, how, self.pid_folder,
                   str(limit_s)]
        if lease_s is not None:
            command.append(str(lease_s))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, "CAIRN_FAULT": faults})
        self.lines = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip())
                self.changed.notify_all()

    def wait_for(self, text, limit_s, times=1):
        return self.wait_until(lambda: sum(text in line for line in self.lines) >= times, limit_s)

    def wait_until(self, is_so, limit_s):
        with self.changed:
            return self.changed.wait_for(is_so, limit_s)

    def output(self):
        return "\n".join(self.lines)

    def saved(self):
        return [int(line.split()[1]) for line in self.lines if re.fullmatch(r"saved \d+", line)]

    def told(self, ranks=0):
        """The ranks' error reports. Waits for `ranks` of them: output comes through the launcher,
        later than a rank's end."""
        self.wait_until(lambda: sum(" was told after " in line for line in self.lines) >= ranks, END_S)
        return [line for line in self.lines if " was told after " in line]

    def stuck(self):
        """Numbers of the ranks that reported to be inside a system call."""
        found = (re.search(r" on rank (\d+) of .* inside a call that cannot be left", line) for line in self.lines)
        return {int(match[1]) for match in found if match}

    def pids(self):
        return [int((self.pid_folder / str(rank)).read_text()) for rank in range(self.ranks)]

    def left_after(self, limit_s):
        """The ranks that are still there after `limit_s`."""
        deadline = time.monotonic() + limit_s
        left = set(self.pids())
        while left and time.monotonic() < deadline:
            left = {pid for pid in left if is_alive(pid)}
            time.sleep(0.02)
        return left

    def kill(self):
        """Whether the launcher hung, as it sometimes does when a rank dies."""
        if any(self.pid_folder.iterdir()):
            for pid in self.pids():
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return True
        finally:
            self.reader.join(timeout=5)
            if not self.reader.is_alive():
                self.process.stdout.close()
        return False


def is_alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"
