"""Turns on a machine that is shared with other measurements: flock(1)'s lock on a file, released now and then."""

import fcntl
import time

LONGEST_S = 170
PAUSE_S = 0.5  # long enough for a waiting process to get the lock


class Turns:
    """Does nothing without a path."""

    def __init__(self, path):
        self.file = None if path is None else open(path, "a", encoding="utf-8")
        self.since = None

    def take(self, seconds):
        """Waits for a turn, unless the current turn has this many seconds left."""
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
