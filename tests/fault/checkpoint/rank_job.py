"""Ranks that save again and again (rank_saver.cpp), as a test looks at them."""

import os
import pathlib
import re
import subprocess
import threading


class Job:
    def __init__(self, program, ranks, root, how, pids, survive):
        launcher = os.environ["CAIRN_MPIEXEC"].split()
        # With recovery the launcher leaves the other ranks alone, and what they do is Cairn's; without, it kills them.
        recovery = ["--enable-recovery"] if survive else []
        command = [*launcher[:1], *recovery, *launcher[1:], str(ranks), program, root, how, pids]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip())
                self.changed.notify_all()

    def wait_for(self, text, limit_s):
        with self.changed:
            return self.changed.wait_for(lambda: any(text in line for line in self.lines), limit_s)

    def saved(self):
        return [int(line.split()[1]) for line in self.lines if re.fullmatch(r"saved \d+", line)]


def is_alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"
