"""A saver that a test drives by commands (saver.cpp)."""

import os
import subprocess
import threading

LIMIT_S = 60


class Saver:
    """A process that answers commands; a silent one is a failure."""

    def __init__(self, program, root, faults):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PMI"))}
        self.process = subprocess.Popen([program, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**environment, "CAIRN_FAULT": faults})

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

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
