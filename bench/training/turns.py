"""Turns on a machine that others measure on: flock(1)'s lock on a file, given away now and then."""

import fcntl
import time

HOLD_S = 60  # a turn ends at the first call of take() after that
PAUSE_S = 0.5  # in which one who waits gets it


class Turns:
    """Without a path, nothing."""

    def __init__(self, path):
        self.file = None if path is None else open(path, "a", encoding="utf-8")
        self.since = None

    def take(self):
        """Waits for a turn unless one is held, and was not held for long."""
        if self.file is None or (self.since is not None and time.monotonic() - self.since < HOLD_S):
            return
        if self.since is not None:
            fcntl.flock(self.file, fcntl.LOCK_UN)
            time.sleep(PAUSE_S)
        fcntl.flock(self.file, fcntl.LOCK_EX)
        self.since = time.monotonic()

    def end(self):
        if self.file is not None:
            self.file.close()
