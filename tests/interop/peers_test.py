"""bench/peers/run on a few MiB: every system is measured and verified, the report is what it says, and nothing stays
behind.

That its checks can fail is tested on its parts, which are imported here.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = ROOT / "bench/peers/run"
sys.path.insert(0, str(ROOT / "bench/peers"))

import storage  # noqa: E402
import workload  # noqa: E402
from support import fresh  # noqa: E402
from values import Values  # noqa: E402

BOTH_LOADS = {"load 4 to 3", "load 4 to 8"}
OPERATIONS = {"cairn": {"save"} | BOTH_LOADS, "dcp": {"save"} | BOTH_LOADS, "dcp-async": {"stall"}, "dcp-hf": {"save"},
              "dcp-hf-all": {"save"}, "safetensors-gather": {"save"} | BOTH_LOADS, "safetensors-shards": {"save"},
              "hdf5": {"save"} | BOTH_LOADS, "raw-direct": {"save"} | BOTH_LOADS, "raw-buffered": {"save"} | BOTH_LOADS}
SMALL = ["--size", "4MiB", "--repeats", "1", "--no-trials"]


def start(*arguments):
    return subprocess.Popen([str(RUN), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "CAIRN_VENV": sys.prefix})


class Run(unittest.TestCase):
    def test_every_system_is_measured_and_verified(self):
        folder = fresh("measured")
        run = start(*SMALL, "--directory", folder, "--output", "report.json", "--profile")
        printed, errors = run.communicate(timeout=500)
        self.assertEqual(run.returncode, 0, printed + errors)
        self.assertEqual(list(folder.iterdir()), [])
        document = json.loads(pathlib.Path("report.json").read_text())
        self.assertEqual(document["cairn_peers_json"], 1)
        self.assertEqual(document["systems"].keys(), OPERATIONS.keys())
        directory = document["directories"][0]
        found = {}
        for row in directory["rows"]:
            found.setdefault(row["system"], set()).add(row["operation"])
            self.assertIs(row["verified"], True, row)
            self.assertEqual(len(row["seconds"]), 1, row)
            self.assertGreater(row["median_seconds"], 0, row)
        self.assertEqual(found, {name: operations for name, operations in OPERATIONS.items()
                                 if name not in directory["not_measured"]})
        self.assertLessEqual(directory["not_measured"].keys(), {"raw-direct", "hdf5"})
        self.check_ratios(directory, document["workload"]["size_bytes"])
        self.assertIn("exchange", printed)  # the profile
        self.assertIn("| save ", pathlib.Path("report.md").read_text())

    def check_ratios(self, directory, size_bytes):
        rows = {(row["system"], row["operation"]): row for row in directory["rows"]}
        dcp, cairn = rows["dcp", "save"], rows["cairn", "save"]
        self.assertAlmostEqual(dcp["ratio"], dcp["seconds"][0] / cairn["seconds"][0])
        self.assertAlmostEqual(dcp["gib_per_second"], size_bytes / dcp["seconds"][0] / 2**30)
        self.assertIsNone(rows["dcp-async", "stall"]["ratio"])
        if directory["kind"] == "disk":
            self.assertEqual([row["resident_bytes_after_drop"] for row in rows.values()], [0] * len(rows))

    def test_nothing_stays_when_it_is_ended(self):
        folder = fresh("ended")
        run = start(*SMALL, "--directory", folder, "--systems", "dcp")
        deadline = time.monotonic() + 60
        while not list(folder.glob("cairn-peers-*/*/*")) and time.monotonic() < deadline and run.poll() is None:
            time.sleep(0.05)
        self.assertIsNone(run.poll(), "it ended before it had written anything")
        run.send_signal(signal.SIGTERM)
        _, errors = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 143, errors)
        self.assertEqual(list(folder.iterdir()), [])


class Parts(unittest.TestCase):
    """What verification and fairness rest on."""

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
