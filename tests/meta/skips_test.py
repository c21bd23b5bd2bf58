"""scripts/count_tests.py and scripts/summarize_rows.py never count a skip as a test that ran, and name failures:
made-up reports of ctest with real output of GoogleTest, unittest and ctest itself."""

import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.sax.saxutils

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
PYTHON_CASES = '''import unittest
class Part(unittest.TestCase):
    def test_a(self):
        {a}
    def test_b(self):
        """It has a docstring."""
        {b}
unittest.main(verbosity={verbosity})
'''
SKIP = 'self.skipTest("needs \'h5dump\': not here")'


def python_output(a, b, verbosity):
    done = subprocess.run([sys.executable, "-c", PYTHON_CASES.format(a=a, b=b, verbosity=verbosity)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout


def gtest_output(ran, skipped, lines=()):
    parts = [f"[==========] {ran + skipped} tests from 1 test suite ran. (1 ms total)\n[  PASSED  ] {ran} tests.\n"]
    if skipped:
        word = "test" if skipped == 1 else "tests"
        parts.append(f"[  SKIPPED ] {skipped} {word}, listed below:\n[  SKIPPED ] Suite.Name\n")
    return "".join(parts) + "".join(line + "\n" for line in lines)


def case(name, output="", status="run", inner=""):
    return (f'<testcase name="{name}" status="{status}">{inner}<system-out>{xml.sax.saxutils.escape(output)}'
            f"</system-out></testcase>")


class Skips(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=".")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.skips = self.folder / "skips"
        self.failures = self.folder / "failures"

    def count(self, *cases):
        report = self.folder / "ctest.xml"
        report.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        self.skips.unlink(missing_ok=True)
        done = subprocess.run([sys.executable, SCRIPTS / "count_tests.py", report, "--skips", self.skips,
                               "--failures", self.failures],
                              capture_output=True, text=True, check=True)
        return done.stdout.split(), self.skips.read_text().splitlines()

    def test_nothing_skipped(self):
        counts, skips = self.count(case("a", gtest_output(3, 0)), case("b", python_output("pass", "pass", 2)))
        self.assertEqual((counts, skips), (["2", "0", "0"], []))

    def test_failures(self):
        counts, _ = self.count(case("a", status="fail"), case("b", status="notrun", inner='<skipped message="Missing"/>'))
        self.assertEqual(counts, ["0", "2", "0"])

    def test_a_failure_tells_its_name_and_what_it_said(self):
        output = "a.cpp:7: Failure\nExpected equality\n" + "".join(f"line {number}\n" for number in range(100))
        self.count(case("mpi.a", output, "fail", '<failure message="Timeout"/>'), case("mpi.b", gtest_output(3, 0)))
        lines = self.failures.read_text().splitlines()
        self.assertEqual((lines[0], lines[1], lines[-1]), ("mpi.a: Timeout", "    a.cpp:7: Failure", "    line 99"))
        self.assertLess(len(lines), 35)

    def test_a_case_of_googletest(self):
        counts, skips = self.count(case("a", gtest_output(2, 1, ["[cairn] skipped Suite.Name: no GPU: none"])))
        self.assertEqual((counts, skips), (["1", "0", "1"], ["Suite.Name: no GPU: none"]))

    def test_every_case_of_googletest(self):
        counts, _ = self.count(case("a", gtest_output(0, 1, ["[cairn] skipped Suite.Name: no GPU: none"])))
        self.assertEqual(counts, ["0", "0", "1"])

    def test_a_case_that_only_rank_0_skipped_was_run(self):
        counts, _ = self.count(case("a", gtest_output(0, 1, ["[cairn] skipped Suite.Name on rank 0: not mine"])))
        self.assertEqual(counts, ["1", "0", "1"])

    def test_googletest_without_lines_of_ours(self):
        counts, skips = self.count(case("a", gtest_output(1, 2)))
        self.assertEqual(counts, ["1", "0", "2"])
        self.assertEqual(skips, ["a: a case was skipped without a line that says why"] * 2)

    def test_a_case_of_unittest(self):
        for a, b in ((SKIP, "pass"), ("pass", SKIP)):
            counts, skips = self.count(case("a", python_output(a, b, 2)))
            self.assertEqual(counts, ["1", "0", "1"], (a, b))
            self.assertRegex(skips[0], r"^a .*: needs 'h5dump': not here$")

    def test_a_case_of_unittest_that_prints_before_it_skips(self):
        counts, skips = self.count(case("a", python_output(f"print('seed 1', flush=True); {SKIP}", "pass", 2)))
        self.assertEqual((counts, skips), (["1", "0", "1"], ["a: needs 'h5dump': not here"]))

    def test_a_case_of_unittest_that_does_not_say_why(self):
        counts, skips = self.count(case("a", python_output(SKIP, "pass", 1)))
        self.assertEqual((counts, len(skips)), (["1", "0", "1"], 1))

    def test_every_case_of_unittest(self):
        for verbosity in (1, 2):
            counts, skips = self.count(case("a", python_output(SKIP, SKIP, verbosity)))
            self.assertEqual((counts, len(skips)), (["0", "0", "2"], 2))

    def test_a_skip_beside_a_failure(self):
        counts, skips = self.count(case("a", python_output(SKIP, "self.fail()", 2), status="fail"))
        self.assertEqual((counts, len(skips)), (["0", "1", "1"], 1))

    def test_a_script_that_exits_with_77(self):
        inner = '<skipped message="SKIP_RETURN_CODE=77"/>'
        counts, skips = self.count(case("a", "[cairn] skipped slurm: srun is not installed", "notrun", inner),
                                   case("b", "", "notrun", inner))
        self.assertEqual((counts, skips), (["0", "0", "2"], ["slurm: srun is not installed", "b: SKIP_RETURN_CODE=77"]))
        counts, skips = self.count(case("b", "hello\nb: no GPU: no driver\n", "notrun", inner))
        self.assertEqual((counts, skips), (["0", "0", "1"], ["b: b: no GPU: no driver"]))

    def test_a_report_that_is_not_there(self):
        done = subprocess.run([sys.executable, SCRIPTS / "count_tests.py", "none.xml", "--skips", self.skips,
                               "--failures", self.failures], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "0 1 0\n")
        self.assertIn("no usable report", self.failures.read_text())

    def summarize(self, skips, *arguments, counts="3 0 1"):
        row = self.folder / "release"
        row.mkdir(exist_ok=True)
        (row / "counts").write_text(counts + "\n")
        (row / "seconds").write_text("5\n")
        (row / "skips").write_text("".join(line + "\n" for line in skips))
        done = subprocess.run([sys.executable, SCRIPTS / "summarize_rows.py", self.folder, "release", *arguments],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def test_strict_summary(self):
        allowed = self.folder / "allowed"
        allowed.write_text("# reasons\n* no GPU:\nmpich no HDF5\n")
        strict = ("--strict", str(allowed))
        self.assertEqual(self.summarize(["A.b: no GPU: no driver"], *strict)[0], 0)
        self.assertEqual(self.summarize(["A.b: no HDF5 here"])[0], 0)
        for skip in ("A.b: no HDF5 here", "A.b: because there is no GPU: none", "slurm: srun is not installed"):
            status, output = self.summarize([skip], *strict)
            self.assertEqual(status, 1, skip)
            self.assertIn(f"1 x release: {skip}\n", output)
            self.assertTrue(output.endswith("3 passed, 0 failed, 1 skipped\n"), output)

    def test_summary_fails_with_a_failure_or_without_any_test(self):
        self.assertEqual(self.summarize([], counts="3 1 0")[0], 1)
        self.assertEqual(self.summarize(["A.b: no GPU: x"], counts="0 0 1")[0], 1)

    def test_summary_ends_with_what_failed(self):
        (self.folder / "release").mkdir()
        (self.folder / "release" / "log").write_text("ninja: it broke\n")
        self.assertTrue(self.summarize([], counts="0 1 0")[1].endswith("    ninja: it broke\n0 passed, 1 failed, 0 skipped\n"))
        (self.folder / "release" / "failures").write_text("mpi.a: Failed\n    line 99\n")
        output = self.summarize(["A.b: no GPU: x"], counts="3 1 1")[1]
        self.assertTrue(output.endswith("mpi.a: Failed\n    line 99\n3 passed, 1 failed, 1 skipped\n"), output)

    def test_summary_gives_one_line_for_each_reason(self):
        output = self.summarize([f"A.{name}: no GPU: x" for name in "aabcd"] + ["B: no HDF5"])[1]
        self.assertIn("skipped 5 x no GPU: x (A.a, A.b and 2 more)\nskipped 1 x no HDF5 (B)\n", output)

    def test_what_continuous_integration_allows(self):
        strict = ("--strict", str(SCRIPTS.parent / "tests/allowed-skips.txt"))
        for reason, status in (("no GPU: no CUDA driver", 0), ("a tmpfs cannot be mounted here: not permitted", 0),
                               ("this build has no HDF5", 1), ("Slurm's daemons need root", 1)):
            self.assertEqual(self.summarize([f"A.b: {reason}"], *strict)[0], status, reason)

    def test_long_rows_keep_their_last_run(self):
        table = self.folder / "long-results.md"
        for row, did in (("fuzz-long", (10,)), ("kills-long", (7,)), ("fuzz-long", (2_000_000, 3))):
            results = self.folder / row
            results.mkdir(exist_ok=True)
            (results / "counts").write_text("1 0 0\n2 0 1\n")
            (results / "seconds").write_text("99\n")
            (results / "log").write_text("".join(f"12: [cairn] did {number} executions\n" for number in did))
            subprocess.run([sys.executable, SCRIPTS / "record_long_row.py", results, table], check=True)
        (results / "ctest.xml").write_text("<system-out>[cairn] did 5 kills</system-out>\n<system-out>a\n[cairn] did 6 kills\n</system-out>\n")
        subprocess.run([sys.executable, SCRIPTS / "record_long_row.py", results, table], check=True)
        self.assertTrue(table.read_text().endswith("| 11 kills |\n"), "tests that pass tell it there")
        (results / "ctest.xml").unlink()
        subprocess.run([sys.executable, SCRIPTS / "record_long_row.py", results, table], check=True)
        rows = [line for line in table.read_text().splitlines() if "-long |" in line]
        self.assertEqual([row.split("|")[1].strip() for row in rows], ["kills-long", "fuzz-long"])
        self.assertRegex(rows[1], r"^\| fuzz-long \| \d{4}-\d\d-\d\d \| .* \| 3 \| 0 \| 1 \| 99 \| 2,000,003 executions \|$")


if __name__ == "__main__":
    unittest.main()
