"""`cairn report`, and `cairn advise` of a root: the past of a run by its log."""

import json
import pathlib
import re
import shlex
import xml.etree.ElementTree as xml

from program import CairnTest, exit_codes, main

PAGE = pathlib.Path(__file__).resolve().parents[2] / "src/life/README.md"
LOG = "cairn.log.jsonl"


def line(minute, what, **more):
    time = f"2026-11-{25 + minute // 1440}T{minute // 60 % 24:02}:{minute % 60:02}:00.000Z"
    return {"version": 1, "time": time, "what": what, "outcome": "good", "run_id": "llama-8b", **more}


def write_log(root):
    """Three programs: 60 saves, one that failed, and two loads."""
    root.mkdir(parents=True)
    lines, minute = [], 0
    for program in range(3):
        if program != 0:
            minute += 30
            lines.append(line(minute, "load", step=program * 2000, seconds=28.0 + program, bytes=2 << 30, ranks=8, nodes=1))
        for save in range(20):
            minute += 20
            lines.append(line(minute, "save", step=program * 2000 + (save + 1) * 100, seconds=41.2, stall_seconds=1.2,
                              wait_seconds=0.0, background_seconds=40.0, bytes=2 << 30, files=4, ranks=8, nodes=1,
                              work_seconds=1140.0 if save else 900.0, **({} if save else {"first": True})))
    lines.append(line(minute, "save", outcome="failed", step=6100, seconds=3.0,
                      error={"kind": "io", "text": "no space left <on> the & device"}))
    (root / LOG).write_text("".join(json.dumps(one) + "\n" for one in lines))


class Report(CairnTest):
    def setUp(self):
        super().setUp()
        self.root = self.folder / "runs/a"
        write_log(self.root)

    def example(self, command):
        found = re.search(rf"(?m)^    \$ cairn ({command} runs/a.*)\n((?:(?:    .*)?\n)+)", PAGE.read_text())
        words, output = found.groups()
        lines = [one.removeprefix("    ").rstrip() for one in output.strip("\n").splitlines()]
        words = [str(self.root) if word == "runs/a" else word for word in shlex.split(words)]
        return words, [one for one in lines]

    def test_the_examples_of_the_page(self):
        for command in ("report", "advise"):
            words, lines = self.example(command)
            text = self.good(*words).out
            self.assertEqual([one.rstrip() for one in text.splitlines()], lines)

    def test_the_document(self):
        document = self.good("report", self.root, "--restart", "5m", "--json").json()
        self.assertEqual((document["saves"], document["loads"], document["bad"], document["programs"]), (60, 2, 1, 3))
        self.assertEqual(document["stall_seconds"], {"median": 1.2, "calls": 60})
        self.assertEqual(document["interval_seconds"], {"median": 1140.0, "calls": 57})
        self.assertAlmostEqual(document["up_seconds"], 57 * 1140 + 3 * 900 + 60 * 1.2)
        advice = self.good("advise", self.root, "--restart", "5m", "--json").json()
        self.assertAlmostEqual(document["advised_seconds"], advice["best"]["seconds"])
        self.assertAlmostEqual(advice["mtbf_seconds"], document["up_seconds"] / 2, places=3)

    def test_the_page_is_xml_with_units_and_sources(self):
        page = self.folder / "report.html"
        self.good("report", self.root, "--restart", "5m", "--html", page)
        text = page.read_text()
        tree = xml.fromstring(text.replace("<!DOCTYPE html>", ""))
        space = "{http://www.w3.org/1999/xhtml}"
        plots = [one for one in tree.iter("{http://www.w3.org/2000/svg}svg") if one.get("role") == "img"]
        headings = [one.text for one in tree.iter(space + "h2")]
        self.assertEqual(headings, ["Interval between saves, and the advice", "Time of a save", "Throughput",
                                    "Size of the checkpoints", "Calls that failed or were refused", "Advice",
                                    "Checkpoints in the root"])
        self.assertEqual(len(plots), 5)
        notes = ["".join(one.itertext()) for one in tree.iter(space + "p") if one.get("class") == "note"]
        self.assertEqual(sum(note.startswith("Source: ") for note in notes), 5)
        for unit in ("minutes of work", "seconds", "GiB/s", "GiB of tensors", "number since the log began"):
            self.assertIn(f">{unit}</text>", text)
        self.assertIn("no space left &lt;on&gt; the &amp; device", text)
        self.assertNotRegex(text, r"(?i)<script|https?://(?!www\.w3\.org)|\bnan\b|\binf\b")

    def test_a_long_log_makes_a_small_page(self):
        with (self.root / LOG).open("a") as log:
            for minute in range(4000):
                log.write(json.dumps(line(minute, "save", step=7000 + minute, seconds=2.0, bytes=1000, work_seconds=60.0)) + "\n")
        page = self.folder / "report.html"
        self.good("report", self.root, "--html", page)
        self.assertLess(page.stat().st_size, 300_000)

    def test_without_a_log_it_says_so(self):
        empty = self.folder / "empty"
        empty.mkdir()
        page = self.folder / "report.html"
        self.assertIn("the root has no log", self.good("report", empty, "--html", page).out)
        xml.fromstring(page.read_text().replace("<!DOCTYPE html>", ""))
        self.bad(1, "report", self.folder / "absent", says=["does not exist"])
        self.bad(1, "report", self.root, "--html", self.folder / "absent/report.html", says=["absent"])

    def test_without_an_advice_it_says_why(self):
        lines = (self.root / LOG).read_text().splitlines()[:1]
        (self.root / LOG).write_text(lines[0] + "\n")
        self.assertIn("no advice: nothing says how often the job fails", self.good("report", self.root).out)

    def test_every_rank_ends_alike(self):
        self.assertEqual(exit_codes("report", self.root, ranks=2), [0, 0])


if __name__ == "__main__":
    main()
