"""Starts examples/trainer under the launcher for a test, reads its output, and kills the whole job at once."""

import os
import pathlib
import queue
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

LAUNCHER = shlex.split(os.environ["CAIRN_MPIEXEC"])
LIMIT_S = 600  # of silence: the time of a training depends on the machine's load
STOPPED = 75  # the trainer's exit code after SIGTERM


def processes_below(pid):
    """Ids of the child processes of a process, of their children, and so on."""
    found = []
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in path.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in children:
            found += [child, *processes_below(child)]
    return found


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


class Silent(AssertionError):
    pass


class Trainer:
    """A running training; `lines` is its output so far."""

    def __init__(self, test, ranks, *options):
        # Leftovers of a killed MPI are removed with the test's folder.
        scratch = {name: str(test.folder) for name in
                   ("TMPDIR", "OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory",
                    "OMPI_MCA_osc_sm_backing_directory", "OMPI_MCA_shmem_mmap_backing_file_base_dir")}
        command = [*LAUNCHER, str(ranks), os.environ["CAIRN_TRAINER"], "--root", str(test.root), *map(str, options)]
        self.lines = []
        self.errors = tempfile.TemporaryFile("w+", dir=test.folder)
        self.began = self.heard = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True, env={**os.environ, **scratch})
        test.addCleanup(self._close)
        self.queue = queue.Queue()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.heard = time.monotonic()
            self.queue.put(line.rstrip("\n"))
        self.queue.put(None)

    def _next(self, limit_s):
        try:
            line = self.queue.get(timeout=limit_s)
        except queue.Empty:
            raise Silent(f"silent for {limit_s:.0f} s; before: {self.said()}") from None
        if line is not None:
            self.lines.append(line)
        return line

    def wait_for(self, beginning):
        """The first line with that beginning, of those not yet read."""
        while True:
            line = self._next(LIMIT_S)
            assert line is not None, f"it ended without '{beginning}': {self.said()}"
            if line.startswith(beginning):
                return line

    def is_silent(self):
        return time.monotonic() - self.heard > LIMIT_S

    def end(self):
        """Waits for the end and returns the exit code. Kills a job that is silent for LIMIT_S, and returns None."""
        try:
            while self._next(LIMIT_S) is not None:
                pass
            return self.process.wait(LIMIT_S)
        except (Silent, subprocess.TimeoutExpired):
            self.kill()
            return None

    def ranks(self):
        """Process ids of the ranks: processes of the launcher without children of their own."""
        return [pid for pid in processes_below(self.process.pid) if not processes_below(pid)]

    def kill(self):
        """SIGKILL for all processes of the job, as when its node loses power. False: it had ended before."""
        job = []
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)  # it starts no more processes
            job = processes_below(self.process.pid)
            for pid in job:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.kill()
        status = self.process.wait(LIMIT_S)
        until = time.monotonic() + LIMIT_S
        while any(is_running(pid) for pid in job):
            assert time.monotonic() < until, "a killed process does not end"
            time.sleep(0.005)
        self.reader.join(LIMIT_S)
        while not self.queue.empty():
            self._next(0)
        return status == -signal.SIGKILL

    def said(self):
        self.errors.seek(0)
        return "\n".join([*self.lines, self.errors.read()])

    def own_errors(self):
        """The trainer's own lines on standard error; launchers add theirs."""
        self.errors.seek(0)
        return [line for line in self.errors.read().splitlines() if line.startswith("trainer: ")]

    def digest(self):
        match = re.search(r"^complete at step \d+, digest ([0-9a-f]{16})$", "\n".join(self.lines), re.MULTILINE)
        assert match, self.said()
        return match[1]

    def losses(self):
        """{step: (loss, loss of the validation)}"""
        found = re.findall(r"^step (\d+): loss ([\d.]+), validation ([\d.]+)$", "\n".join(self.lines), re.MULTILINE)
        return {int(step): (loss, validation) for step, loss, validation in found}

    def _close(self):
        self.kill()
        self.process.stdout.close()
        self.errors.close()


class TrainerTest(unittest.TestCase):
    def setUp(self):
        in_memory = pathlib.Path("/dev/shm")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trainer-", dir=in_memory if in_memory.is_dir() else None))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.root = self.folder / "root"

    def new_root(self):
        shutil.rmtree(self.root, ignore_errors=True)

    def complete(self, ranks, *options):
        """Runs a training to its end."""
        trainer = Trainer(self, ranks, *options)
        self.assertEqual(trainer.end(), 0, trainer.said())
        return trainer
