"""bench/peers/run on a few MiB: every system is measured and verified, the report is correct,
and nothing is left behind.

Failures of its checks are tested on its parts, which are imported here.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types
import unittest

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = ROOT / "bench/peers/run"
sys.path.insert(0, str(ROOT / "bench/peers"))

import measure  # noqa: E402
import report  # noqa: E402
import storage  # noqa: E402
import workload  # noqa: E402
from support import fresh  # noqa: E402
from system import asynchronous  # noqa: E402
from values import Values  # noqa: E402

BOTH_LOADS = {"load 4 to 3", "load 4 to 8"}
ASYNCHRONOUS = {"stall", "until durable", "lost", "slow-down"}
OPERATIONS = {"cairn": {"save"} | BOTH_LOADS, "dcp": {"save"} | BOTH_LOADS, "dcp-hf": {"save"}, "dcp-hf-all": {"save"},
              "safetensors-gather": {"save"} | BOTH_LOADS, "safetensors-shards": {"save"},
              "hdf5": {"save"} | BOTH_LOADS, "raw-direct": {"save"} | BOTH_LOADS, "raw-buffered": {"save"} | BOTH_LOADS,
              **dict.fromkeys(("cairn-async", "dcp-async", "dcp-async-process", "dcp-async-default"), ASYNCHRONOUS)}
SMALL = ["--size", "4MiB", "--repeats", "1", "--no-trials"]


def start(*arguments, **environment):
    return subprocess.Popen([str(RUN), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "CAIRN_VENV": sys.prefix, **environment})


def processes_with(variable, value):
    """Command lines of the processes with this text in their environment."""
    out = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"{variable}={value}".encode() in (process / "environ").read_bytes().split(b"\0"):
                out.append((process / "cmdline").read_text())
        except OSError:  # the process has ended, or is another user's
            pass
    return out


class Run(unittest.TestCase):
    def test_every_system_is_measured_and_verified(self):
        folder = fresh("measured")
        folder.mkdir()
        run = start(*SMALL, "--directory", folder, "--output", "report.json", "--profile")
        printed, errors = run.communicate(timeout=500)
        self.assertEqual(run.returncode, 0, printed + errors)
        self.assertEqual(list(folder.iterdir()), [])
        document = json.loads(pathlib.Path("report.json").read_text())
        self.assertEqual(document["cairn_peers_json"], 2)
        self.assertEqual(document["systems"].keys(), OPERATIONS.keys())
        directory = document["directories"][0]
        found = {}
        for row in directory["rows"]:
            found.setdefault(row["system"], set()).add(row["operation"])
            self.assertIs(row["verified"], True, row)
            self.assertEqual(len(row["seconds"]), 1, row)
            if row["operation"] != "lost":  # its difference is small, and may be negative
                self.assertGreater(row["median_seconds"], 0, row)
        for row in directory["slow_downs"]:
            found[row["system"]].add("slow-down")
            self.assertIs(row["verified"], True, row)
        self.assertEqual(found, {name: operations for name, operations in OPERATIONS.items()
                                 if name not in directory["not_measured"]})
        self.assertLessEqual(directory["not_measured"].keys(), {"raw-direct", "hdf5"})
        self.check_ratios(directory, document["workload"]["size_bytes"])
        self.check_asynchronous(directory)
        self.assertIn("exchange", printed)  # the profile
        self.assertIn("| save ", pathlib.Path("report.md").read_text())

    def check_ratios(self, directory, size_bytes):
        rows = {(row["system"], row["operation"]): row for row in directory["rows"]}
        dcp, cairn = rows["dcp", "save"], rows["cairn", "save"]
        self.assertAlmostEqual(dcp["ratio"], dcp["seconds"][0] / cairn["seconds"][0])
        self.assertAlmostEqual(dcp["gib_per_second"], size_bytes / dcp["seconds"][0] / 2**30)
        if directory["kind"] == "disk":
            self.assertEqual([row["resident_bytes_after_drop"] for row in rows.values()], [0] * len(rows))

    def check_asynchronous(self, directory):
        rows = {(row["system"], row["operation"]): row for row in directory["rows"]}
        for slow_down in directory["slow_downs"]:
            stall, durable = (rows[slow_down["system"], operation] for operation in ("stall", "until durable"))
            self.assertLessEqual(stall["seconds"][0], durable["seconds"][0])  # per call: the stall is a part of it
            self.assertGreater(stall["ratio"], 0)
            self.assertGreater(slow_down["ratio"], 0)
            self.assertGreater(slow_down["details"][0]["steps"], 0)

    def test_nothing_stays_when_it_is_ended(self):
        for system, written in (("dcp", "*"), ("dcp-async-process", "step-*/*")):
            with self.subTest(system):
                self.end_a_run_of(system, written)

    def end_a_run_of(self, system, written):
        folder = fresh("ended")
        folder.mkdir()
        mark = f"{os.getpid()} {system}"
        run = start(*SMALL, "--directory", folder, "--systems", system, CAIRN_TEST_RUN=mark)
        deadline = time.monotonic() + 300
        while not list(folder.glob(f"cairn-peers-*/{system}/{written}")):
            self.assertIsNone(run.poll(), "it ended before it had written anything")
            self.assertLess(time.monotonic(), deadline, "it has written nothing")
            time.sleep(0.05)
        run.send_signal(signal.SIGTERM)
        _, errors = run.communicate(timeout=300)
        self.assertEqual(run.returncode, 143, errors)
        deadline = time.monotonic() + 300
        while (left := processes_with("CAIRN_TEST_RUN", mark)) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(left, [])
        self.assertEqual(list(folder.iterdir()), [])


class Parts(unittest.TestCase):
    """The basis of verification and fairness."""

    CONFIG = workload.config_of_size(4 << 20)

    def test_the_state_has_the_size_that_was_asked_for(self):
        for size in (4 << 20, 64 << 20, 2 << 30, 20 << 30):
            found = workload.total_bytes(workload.tensors_of(workload.config_of_size(size)))
            self.assertLess(abs(found / size - 1), 0.02, size)

    def test_the_boxes_of_a_layout_cover_every_element_once(self):
        for text in ("tp=2,pp=2", "fsdp=3", "tp=4,pp=2"):
            layout, seen = workload.Layout.parse(text), 0
            for tensor in workload.tensors_of(self.CONFIG):
                count = numpy.zeros(tensor.shape, dtype=int)
                boxes = {layout.box_of(tensor, rank, self.CONFIG["num_hidden_layers"]) for rank in range(layout.ranks)}
                for box in boxes - {None}:
                    count[tuple(slice(o, o + s) for o, s in zip(box.offset, box.shape))] += 1
                self.assertTrue((count == 1).all(), (text, tensor))
                seen += 1
            self.assertGreater(seen, 80, text)

    def test_one_wrong_bit_is_seen(self):
        for tensor in workload.tensors_of(self.CONFIG)[:9:4]:
            box = workload.Layout.parse("tp=2,pp=2").box_of(tensor, 1, self.CONFIG["num_hidden_layers"])
            values = Values(tensor)
            array = numpy.empty(box.shape, dtype=values.dtype)
            values.fill(box, array)
            self.assertTrue(values.is_equal(box, array))
            array.reshape(-1)[-1] ^= 1
            self.assertFalse(values.is_equal(box, array))
            self.assertFalse(values.is_equal(box, array[:-1]))

    def test_asynchronous_saves_are_reported(self):
        bench = types.SimpleNamespace(
            directory=fresh("reported"), workload=types.SimpleNamespace(size_bytes=2**30), is_memory=True, unusable={},
            systems=[types.SimpleNamespace(name=name) for name in ("cairn-async", "dcp-async-default")], tried=[],
            series={})
        for system, factor in (("cairn-async", 1), ("dcp-async-default", 25)):
            for number in (1, 5, 2):
                measured = asynchronous(stall=0.1 * number * factor, durable=factor, busy=3 * factor, steps=100,
                                        step=0.01, busy_step=0.01 + 0.01 * number * factor)
                measured.details = {"memcpy_seconds": 0.08 * number}
                for operation, found in {"stall": measured, **measured.also}.items():
                    key = (system, operation)
                    bench.series.setdefault(key, measure.Series(*key, {})).add(found, system == "cairn-async")
        document = report.directory_document(bench)
        rows = {(row["system"], row["operation"]): row for row in document["rows"]}
        self.assertEqual(list(rows), [(system, operation) for operation in ("stall", "until durable", "lost")
                                      for system in ("cairn-async", "dcp-async-default")])
        peer = {operation: row for (system, operation), row in rows.items() if system != "cairn-async"}
        self.assertAlmostEqual(peer["stall"]["median_seconds"], 5)
        self.assertAlmostEqual(peer["stall"]["ratio"], 25)
        self.assertAlmostEqual(peer["until durable"]["ratio"], 25)
        self.assertAlmostEqual(peer["lost"]["median_seconds"], 75 - 1)
        self.assertAlmostEqual(peer["lost"]["ratio"], 74 / 2)
        cairn, dcp = document["slow_downs"]
        self.assertEqual([cairn["system"], dcp["system"]], ["cairn-async", "dcp-async-default"])
        self.assertAlmostEqual(dcp["median"], 51)
        self.assertAlmostEqual(dcp["ratio"], 51 / 3)
        self.assertAlmostEqual(cairn["stall_per_memcpy"], 0.2 / 0.16)
        self.assertAlmostEqual(dcp["stall_per_memcpy"], 5 / 0.16)
        self.assertEqual([cairn["verified"], dcp["verified"]], [True, False])
        found = [(target["kind"], target["peer"], target["met"]) for target in report.targets_of([document])]
        self.assertEqual(found, [("memory", "dcp-async-default", True)])
        table = report.tables_of(document)[1]
        self.assertEqual([cell.strip() for cell in table[2]],
                         ["dcp-async-default", "51.00", "26.00", "126.00", "10.00", "510.00", "17.00", "31.25", "NO", "-"])

    def test_a_file_leaves_the_page_cache(self):
        folder = fresh("cache")
        folder.mkdir()
        (folder / "file").write_bytes(b"x" * (1 << 20))
        if storage.file_system_of(folder)[0] in storage.MEMORY_FILE_SYSTEMS:
            self.skipTest("a memory file system")
        self.assertEqual(storage.resident_bytes(folder / "file"), 1 << 20)
        storage.fsync_path(folder / "file")
        self.assertEqual(storage.drop_from_cache(folder), 0)


if __name__ == "__main__":
    unittest.main(argv=["test"], verbosity=2)
