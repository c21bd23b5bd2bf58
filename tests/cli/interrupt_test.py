"""Ctrl-C and SIGTERM: a command removes its partial output, reports it in one line, and touches nothing else."""

import resource
import signal
import time

from program import CairnTest, Paused, cairn, main, snapshot
from small_files import two_shards, write_raw


class Interrupted(CairnTest):
    def setUp(self):
        super().setUp()
        self.source = self.folder / "source"
        two_shards(self.source)
        self.others = self.folder / "out.0123456789abcdef.partial"  # another run's
        self.others.mkdir()
        (self.others / "file").write_text("mine")

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def interrupt(self, started, which, says):
        """Sends the signal; expects one line on standard error with the words; returns the exit status."""
        started.process.send_signal(which)
        result = started.result()
        own = [line for line in result.err.splitlines() if line.startswith("cairn") and "is of another run" not in line]
        self.assertEqual(len(own), 1, result.err)
        for word in says:
            self.assertIn(word, own[0])
        self.assertEqual(result.out, "")
        return result.code

    def test_a_conversion(self):
        before = self.names()
        for fault, which, status in (("fsync", signal.SIGINT, 130), ("commit.manifest", signal.SIGTERM, 143),
                                     ("commit.rename", signal.SIGINT, 130), ("fsync", signal.SIGHUP, 129),
                                     ("fsync", signal.SIGUSR1, 138), ("fsync", signal.SIGUSR2, 140),
                                     ("fsync", signal.SIGXCPU, 152)):
            with self.subTest(fault=fault, which=which):
                started = Paused(self, fault, "convert", self.source, self.folder / "out")
                partial = set(self.names()) - set(before)
                self.assertEqual(len(partial), 1)
                code = self.interrupt(started, which, [which.name, "removed", f"{self.folder}/{partial.pop()}"])
                self.assertEqual(code, status)
                self.assertEqual(self.names(), before)
        self.assertEqual(snapshot(self.others), {"file": b"mine"})
        self.good("convert", self.source, self.folder / "out")

    def test_a_limit_of_the_sizes_of_files_is_an_error_and_no_signal(self):
        large = self.folder / "large"
        write_raw(large / "model.safetensors", {"w": {"dtype": "U8", "shape": [12 << 20], "data_offsets": [0, 12 << 20]}},
                  bytes(12 << 20))
        for limit, code in ((8 << 20, 1), (64 << 20, 0)):  # MPI itself needs 4 MiB
            with self.subTest(limit=limit):
                limited = {"preexec_fn": lambda most=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))}
                result = cairn("convert", large, self.folder / "out", who=limited)
                self.assertEqual(result.code, code, result.err)
                if code:
                    self.assertIn(f"files of this process may have {limit} bytes: raise the limit (ulimit -f)",
                                  result.errors[0])
                    self.assertFalse((self.folder / "out").exists())

    def test_a_staging_file(self):
        before = self.names()
        for fault in ("stage.skeleton", "stage.rename"):
            started = Paused(self, fault, "convert", self.source, self.folder / "out.h5")
            self.assertEqual(self.interrupt(started, signal.SIGINT, ["SIGINT", "removed", "out.h5."]), 130)
            self.assertEqual(self.names(), before)

    def test_a_save_on_two_ranks_and_the_one_before_stays(self):
        root = self.folder / "root"
        save = ("demo", "save", "--dir", root, "--layers", "1", "--step")
        self.good(*save, "100", ranks=2)
        for fault in ("fsync:path=.safetensors", "commit.manifest"):
            started = Paused(self, fault, *save, "200", ranks=2)
            self.assertEqual(len(list(root.glob("checkpoint-200.*.partial"))), 1)
            # mpirun ends its ranks by SIGTERM, whatever signal it received.
            self.assertNotEqual(self.interrupt(started, signal.SIGINT, ["removed", "checkpoint-200."]), 0)
            self.assertEqual([path.name for path in root.iterdir() if "200" in path.name], [])
            # The next saver, also on another node, need not wait for the lease to run out.
            newest = max((root / ".cairn").glob("epoch-*"), key=lambda path: int(path.name.partition("-")[2]))
            self.assertIn("released", newest.read_text().split())
            self.assertIn("good:", self.good("verify", root / "checkpoint-100").out)
        self.good(*save, "200", ranks=2)

    def test_a_save_that_has_its_name_stays(self):
        root = self.folder / "root"
        started = Paused(self, "commit.publish", "demo", "save", "--dir", root, "--layers", "1")
        self.assertEqual(self.interrupt(started, signal.SIGINT, ["SIGINT"]), 130)
        self.assertIn("good:", self.good("verify", root / "checkpoint-100").out)
        self.assertEqual([path.name for path in root.iterdir() if path.suffix in (".partial", ".tmp")], [])

    def test_a_benchmark(self):
        (self.folder / "bench").mkdir()
        before = self.names()
        started = Paused(self, "commit.manifest", "bench", "--dir", self.folder / "bench", "--size", "16MiB", "--repeats", "1")
        started.process.send_signal(signal.SIGINT)
        result = started.result()
        self.assertEqual(result.code, 130)
        self.assertIn("removed the unfinished", result.err.splitlines()[-1])
        self.assertEqual(list((self.folder / "bench").iterdir()), [])
        self.assertEqual(self.names(), before)

    def test_a_command_that_only_reads(self):
        self.good("convert", self.source, self.folder / "out")
        started = Paused(self, "read:path=.safetensors", "verify", self.folder / "out")
        self.assertEqual(self.interrupt(started, signal.SIGTERM, ["interrupted by SIGTERM"]), 143)

    def test_what_is_ignored_stays_so(self):
        started = Paused(self, "commit.manifest", "convert", self.source, self.folder / "out",
                             before=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))  # as nohup and "&" do
        started.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        self.assertIsNone(started.process.poll())
        started.go()
        result = started.result()
        self.assertEqual(result.code, 0, result.err)
        self.assertTrue((self.folder / "out" / "cairn.json").exists())


if __name__ == "__main__":
    main()
