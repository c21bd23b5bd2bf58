"""Turns on a machine that others measure on: flock(1)'s lock on a file, given away now and then."""

import fcntl
import time

LONGEST_S = 170
PAUSE_S = 0.5  # in which one who waits gets it


class Turns:
    """Without a path, nothing."""

    def __init__(self, path):
        self.file = None if path is None else open(path, "a", encoding="utf-8")
        self.since = None

    def take(self, seconds):
        """Waits for a turn, unless one is held in which so many seconds are left."""
        if self.file is None or (self.since is not None and time.monotonic() - self.since + seconds < LONGEST_S):
            return
        self.end()
        fcntl.flock(self.file, fcntl.LOCK_EX)
        self.since = time.monotonic()

    def end(self):
        if self.since is not None:
            fcntl.flock(self.file, fcntl.LOCK_UN)
            self.since = None
            time.sleep(PAUSE_S)
