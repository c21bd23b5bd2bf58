"""Storage that really fails under saves of two ranks, synchronous and asynchronous: a full file system, one without
free inodes, one whose disk accepts no more data, and one made for the test (fault_fs.cpp), where any call fails,
is shortened, loses data or stalls. Afterwards all ranks have the same error, which describes the storage;
the previous checkpoint is intact and the newest; and the next save works and removes the leftovers.

    storage_test.py --fault-fs FAULT_FS --draws 2 SAVER RANK_SAVER

Each test draws that many faults of its kind; 0: it tests all of them."""

import argparse
import itertools
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
import time
import unittest

from driven import Saver
from mounts import ERRNO, Ext4, FaultFs, Tmpfs, enter_namespace
from rank_job import END_S, START_S, Job
from root import newest, verify

SEED = int(os.environ.get("CAIRN_TEST_SEED", random.randrange(1 << 30)))
RANKS = 2
LIMIT_S = 300  # for every wait for another rank; storage that reports an error takes much less
SILENCE_LIMIT_S = 2  # the same for storage that is silent on purpose
LEASE_S = 10  # how long a save waits for an epoch that a failed call has made
HOWS = ("save", "save_async")
ENGINES = ("posix", "direct")
MODES = ("direct", "buffered", "writeback")  # modes of fault_fs
# The kernel reports an error for io_uring's writes when FUSE wrote only a part.
TEXTS = {"EIO": "Input/output error", "ENOSPC": "No space left on device", "short": "Input/output error"}
FAILING = [("create", "EIO"), ("open", "EIO"), ("write", "EIO"), ("write", "ENOSPC"), ("write", "short"), ("read", "EIO"),
           ("fsync", "EIO"), ("flush", "EIO"), ("fsyncdir", "EIO"), ("rename", "EIO"), ("link", "EIO"), ("mkdir", "ENOSPC"),
           ("rmdir", "EIO"), ("unlink", "EIO"), ("truncate", "EIO"), ("fallocate", "ENOSPC"), ("opendir", "EIO"),
           ("readdir", "EIO"), ("getattr", "EIO"), ("statfs", "EIO")]
# In the checkpoint's files these faults must be reported. Elsewhere some need not be: a lease is renewed again.
NEVER_UNHEARD = [("create", "EIO"), ("write", "EIO"), ("write", "ENOSPC"), ("fsync", "EIO"), ("fsyncdir", "EIO"),
                 ("mkdir", "ENOSPC"), ("truncate", "EIO"), ("fallocate", "ENOSPC")]
FAULTS = [(*fault, "") for fault in FAILING] + [(*fault, "checkpoint-") for fault in NEVER_UNHEARD]
MIB = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Storage(unittest.TestCase):
    draws = 2
    saver = rank_saver = fault_fs = None

    def setUp(self):
        in_memory = pathlib.Path("/dev/shm")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="storage-", dir=in_memory if in_memory.is_dir() else None))
        self.addCleanup(shutil.rmtree, self.folder)
        self.random = random.Random(SEED)
        self.step = 0
        self.failed = self.passed = 0

    def begin(self, root, engine="auto", read_back=""):
        """A job that continues after every failure, and its first checkpoint."""
        self.root = root
        self.job = Saver(self.saver, root, ranks=RANKS, CAIRN_WATCHDOG_S=str(LIMIT_S))
        self.addCleanup(self.job.end)
        self.use(engine, read_back)
        if self.step == 0:
            self.good_save("save")

    def use(self, engine, read_back=""):
        self.assertEqual(self.job.ask(f"new {LEASE_S} 60 {engine} {read_back}"), "ok")

    def good_save(self, how):
        self.step += 1
        self.assertEqual(self.job.ask(f"{how} {self.step} {self.step}"), "saved")
        self.check()

    def check(self):
        """The last step is the newest and intact, and the root has only checkpoints."""
        self.assertEqual(self.job.ask("latest"), f"latest {self.step}")
        self.assertEqual(self.job.ask(f"load {self.step}"), f"loaded {self.step}")
        own = {".cairn", "latest_checkpointed_iteration.txt", "cairn.log.jsonl"}
        names = {path.name for path in self.root.iterdir()} - own
        self.assertEqual([name for name in names if not re.fullmatch(r"checkpoint-\d+", name)], [])

    def after_a_fault(self, how, answer, seconds, expected):
        """After the storage works again."""
        self.assertLess(seconds, LIMIT_S, answer)
        if answer == "saved":
            self.step += 1
            self.passed += 1
        else:
            self.assertRegex(answer, r"^error \d ")
            self.assertRegex(answer, expected)
            found = newest(self, self.root)
            self.assertIn(found, (self.step, self.step + 1), answer)
            if found != self.step:  # a failure after the commit is reported as well
                self.assertIn("is complete", answer)
            self.assertEqual(self.job.ask(f"load {self.step}"), f"loaded {self.step}", answer)
            self.failed += 1
            self.good_save(how)
        self.check()
        for path in self.root.glob("checkpoint-*"):
            if int(path.name.split("-")[1]) < self.step:
                shutil.rmtree(path)

    def save(self, how):
        """(answer, seconds) of one more save, under the current fault."""
        began = time.monotonic()
        answer = self.job.ask(f"{how} {self.step + 1} {self.step + 1}")
        return answer, time.monotonic() - began

    def drawn(self, faults):
        faults = list(faults)
        return self.random.sample(faults, min(self.draws, len(faults))) if self.draws else faults

    def say(self, what):
        self.assertGreater(self.failed, 0)
        print(f"[cairn] did {self.failed} saves that failed for {what}", flush=True)
        print(f"[cairn] did {self.passed} saves that did not mind {what}", flush=True)

    def test_a_full_file_system(self):
        memory = Tmpfs(self, self.folder / "tmpfs", size=16 * MIB)
        self.begin(memory.path / "root")
        needed = sum(path.stat().st_blocks * 512 // PAGE_BYTES for path in self.root.rglob("checkpoint-*/*"))
        # Too little space for the data is noticed before any is written; otherwise the small files do not fit.
        for free in self.drawn(range(needed - 8))[:4] + self.drawn(range(needed - 8, needed + 2)):
            for how in HOWS:
                with self.subTest(how=how, free=free, needed=needed, seed=SEED):
                    memory.leave(free * PAGE_BYTES)
                    answer = self.save(how)
                    memory.resize("size", 16 * MIB)
                    self.after_a_fault(how, *answer, "No space left on device")
        self.job.finish()
        self.say("want of space")

    def test_a_file_system_without_inodes(self):
        memory = Tmpfs(self, self.folder / "tmpfs", size=16 * MIB, nr_inodes=1000)
        self.begin(memory.path / "root")
        for how in HOWS:
            for free in range(100):
                before = self.passed
                with self.subTest(how=how, free=free):
                    memory.leave_inodes(free)
                    answer = self.save(how)
                    memory.resize("nr_inodes", 1000)
                    self.after_a_fault(how, *answer, "No space left on device")
                if self.passed != before:
                    break
        self.job.finish()
        self.say("want of inodes")

    def test_a_disk_that_takes_no_more(self):
        """ext4 on a failing device: writes succeed and fsync fails, or reads and writes with O_DIRECT fail."""
        for engine, how in self.drawn(itertools.product(ENGINES, HOWS)):
            print(f"{engine}, {how}, seed {SEED}", flush=True)  # no subTest: it would continue after a skip
            memory = Tmpfs(self, self.folder / f"memory-{how}-{engine}", size=64 * MIB)
            disk = Ext4(self, self.folder / f"disk-{how}-{engine}", memory.path / "image", 48 * MIB)
            self.step = 0
            self.begin(disk.path / "root", engine)
            memory.leave(64 << 10)
            answer, seconds = self.save(how)
            self.assertRegex(answer, r"^error \d .*(Input/output error|No space left on device|Read-only file system)")
            self.assertLess(seconds, LIMIT_S)
            self.job.finish()
            # Only data on the device counts.
            disk.unmount()
            memory.resize("size", 64 * MIB)
            disk.mount_again()
            self.assertEqual(newest(self, self.root), self.step)
            self.failed += 1
            self.begin(disk.path / "root", engine)
            self.good_save(how)
            self.job.finish()
            disk.unmount()
            memory.unmount()
        self.say("a disk that took no more")

    def begin_before(self, mode):
        """A job on a file system that fails on command."""
        files = self.fault_fs_of(mode)
        self.step = 0
        self.begin(files.path / "root")
        return files

    def fault_fs_of(self, mode):
        if not self.fault_fs:
            self.skipTest("this build has no libfuse3")
        folder = self.folder / f"behind-{mode}"
        folder.mkdir()
        return FaultFs(self, self.folder / mode, self.fault_fs, folder, mode)

    def test_any_call_fails(self):
        for mode in MODES:
            files = self.begin_before(mode)
            for engine in ENGINES:
                self.use(engine)
                for fault, how in self.drawn(itertools.product(FAULTS, HOWS)):
                    if (mode, fault[1]) != ("writeback", "short"):  # the kernel loses the rest
                        self.fail_each(files, mode, engine, how, fault)
            self.job.finish()
        self.say("calls that failed")

    def fail_each(self, files, mode, engine, how, fault):
        call, error, part = fault
        after = 0 if self.draws == 0 else self.random.randrange(4)
        while True:
            with self.subTest(mode=mode, engine=engine, how=how, fault=fault, after=after, seed=SEED):
                files.set(call, "short" if error == "short" else "fail", ERRNO.get(error, 0), after, part=part)
                answer = self.save(how)
                hits = files.clear()
                self.after_a_fault(how, *answer, TEXTS[error])
                if hits == 0 or (error, engine) == ("short", "posix"):
                    self.assertEqual(answer[0], "saved")
                elif part:
                    self.assertNotEqual(answer[0], "saved")
                if hits == 0:
                    return
            after += 1 if self.draws == 0 else self.random.randrange(1, 30)

    def test_writes_that_are_lost(self):
        """Read-back reads from the storage, past the page cache; without it, the next verify finds the damage."""
        for mode in MODES:
            files = self.begin_before(mode)
            for engine in ENGINES:
                for read_back, part in ("read_back", "checkpoint-"), ("", ".safetensors"):
                    self.use(engine, read_back)
                    for after, how in self.drawn(itertools.product(range(12), HOWS)):
                        with self.subTest(mode=mode, engine=engine, read_back=read_back, how=how, after=after, seed=SEED):
                            self.lose(files, how, after, part, read_back)
            self.job.finish()
        self.say("writes that were lost")

    def lose(self, files, how, after, part, read_back):
        files.set("write", "lie", after=after, part=part)
        answer, seconds = self.save(how)
        hits = files.clear()
        if hits == 0 or read_back:
            self.assertEqual(answer == "saved", hits == 0, answer)
            self.after_a_fault(how, answer, seconds, "checksum|read back")
            return
        self.assertEqual(answer, "saved")
        self.failed += 1
        lost = self.root / f"checkpoint-{self.step + 1}"
        done = verify(lost)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout + done.stderr, r'"file": "model.*\.safetensors')
        self.assertEqual(newest(self, self.root / f"checkpoint-{self.step}"), self.step)
        shutil.rmtree(lost)
        self.good_save(how)

    def test_storage_that_does_not_answer_for_a_while(self):
        files = self.begin_before("buffered")
        for engine in ENGINES:
            self.use(engine)
            for call, how in self.drawn(itertools.product(("write", "fsync", "any"), HOWS)):
                with self.subTest(call=call, engine=engine, how=how, seed=SEED):
                    files.set(call, "stall", after=self.random.randrange(4), times=0)
                    self.job.send(f"{how} {self.step + 1} {self.step + 1}")
                    until = time.monotonic() + START_S
                    while files.hits() == 0 and time.monotonic() < until:
                        time.sleep(0.1)
                    time.sleep(1)  # the storage is silent for that time
                    self.assertGreater(files.clear(), 0)
                    self.assertEqual(self.job.receive(), "saved")
                    self.step += 1
                    self.check()
        self.job.finish()

    def test_storage_that_does_not_answer_for_longer_than_the_limit(self):
        files = self.fault_fs_of("buffered")
        self.root = files.path / "root"
        # One of a save's calls, or all from there on.
        for call, how in self.drawn(itertools.product(("write", "fsync", "flush", "any"), ("save", "async"))):
            with self.subTest(call=call, how=how, seed=SEED):
                self.keep_silent(files, call, how)

    def rank_job(self, how, last, **options):
        """A job of more ranks, which has saved twice after step `last`."""
        job = Job(self.rank_saver, 3, self.root, how, self.folder, SILENCE_LIMIT_S, lease_s=LEASE_S, **options)
        self.addCleanup(job.kill)
        self.assertTrue(job.wait_for(f"saved {last + 2}", START_S), job.output())
        return job

    def keep_silent(self, files, call, how):
        job = self.rank_job(how, newest(self, self.root) if self.root.exists() else 0, survive=True)
        try:
            self.look_at_silence(files, call, job)
        finally:  # the next job needs the root
            files.clear()
            job.kill()
        found = newest(self, self.root)
        self.assertIn(found, (job.saved()[-1], job.saved()[-1] + 1), job.output())
        next_job = self.rank_job(how, found)
        next_job.kill()
        shutil.rmtree(self.root)

    def look_at_silence(self, files, call, job):
        files.set(call, "stall", after=self.random.randrange(60), times=0 if call == "any" else 1)
        if call == "any":  # no rank can tell another rank's silence from the storage's
            self.assertTrue(job.wait_for("no progress", END_S), job.output())
        else:
            # A rank may be stuck behind the stalled one: the kernel admits one at a time into a file.
            self.assertTrue(job.wait_until(lambda: job.told() and len(job.told()) + len(job.stuck()) >= 3, END_S),
                            job.output())
            for line in job.told():
                missing = {int(rank) for rank in re.findall(r"rank (\d) of 3 \(.*?\) is missing", line)}
                self.assertTrue(missing and missing <= job.stuck(), job.output())
        saved = job.saved()[-1]
        self.assertGreater(files.clear(), 0)
        goes_on = f"saved {saved + 2}"
        job.wait_until(lambda: goes_on in job.lines or len(job.told()) == 3, END_S)
        if call == "any" and goes_on in job.lines:
            self.assertEqual(job.told(), [])  # they waited and continued
        else:
            self.assertFalse(job.left_after(END_S), job.output())
            self.assertEqual(len(job.told(3)), 3, job.output())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("saver")
    parser.add_argument("rank_saver")
    parser.add_argument("--fault-fs")
    parser.add_argument("--draws", type=int, default=Storage.draws)
    parser.add_argument("tests", nargs="*", help="Storage.test_... (all)")
    options = parser.parse_args()
    enter_namespace()
    Storage.saver, Storage.rank_saver, Storage.fault_fs = options.saver, options.rank_saver, options.fault_fs
    Storage.draws = options.draws
    print(f"CAIRN_TEST_SEED={SEED}", flush=True)
    unittest.main(argv=[sys.argv[0], *options.tests], verbosity=2)
