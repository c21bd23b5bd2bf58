"""A saver that a test controls by commands (saver.cpp), alone or on several ranks."""

import os
import signal
import subprocess
import threading

LIMIT_S = 300


class Saver:
    """A job that answers commands; silence is a failure."""

    def __init__(self, program, root, faults="", ranks=1, **environment):
        launcher = [*os.environ["CAIRN_MPIEXEC"].split(), str(ranks)] if ranks > 1 else []
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PMI"))}
        self.process = subprocess.Popen([*launcher, program, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env={**inherited, "CAIRN_FAULT": faults, **environment})
        self.pids = [self.process.pid]
        if ranks > 1:
            self.pids = [int(pid) for pid in self.ask("pids").split()[1:]]

    def send(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def receive(self):
        overdue = threading.Timer(LIMIT_S, self.process.kill)
        overdue.start()
        line = self.process.stdout.readline().strip()
        overdue.cancel()
        assert line, "a saver ended, or did not answer"
        return line

    def ask(self, command):
        self.send(command)
        return self.receive()

    def signal(self, number):
        for pid in self.pids:
            os.kill(pid, number)

    def finish(self):
        """Ends the job regularly."""
        self.process.stdin.close()
        assert self.process.wait(timeout=LIMIT_S) == 0, "a saver did not end well"

    def end(self):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:  # the launcher hangs now and then
                self.process.kill()
                self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
