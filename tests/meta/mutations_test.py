"""tests/mutations/run reports which test notices a fault, and mistakes nothing else for that:
a small tree with one program."""

import importlib.util
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
PRESETS = '{"version": 3, "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "build/release"}]}\n'
PROJECT = """cmake_minimum_required(VERSION 3.22)
project(small C)
enable_testing()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
add_executable(sums sums.c)
add_test(NAME sums COMMAND sums)
"""
SOURCE = "int main(void) {\n  int unused = 5;\n  return 1 + 2 == 3 && unused != 0 ? 0 : 1;\n}\n"


def mutation(name, old, new, tests="^sums$"):
    return (f'[[mutation]]\nname = "{name}"\nbreaks = "a sum"\nfile = "sums.c"\nold = \'\'\'{old}\'\'\'\n'
            f"new = '''{new}'''\ntests = '{tests}'\n")


NOTICED = mutation("wrong-sum", "1 + 2", "1 + 1")
UNNOTICED = mutation("other-number", "= 5", "= 6")
UNBUILDABLE = mutation("no-number", "5", "five")


class Mutations(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=".")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)
        for name in ("mutations/run", "meta/tree.py"):
            (self.root / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TESTS / name, self.root / "tests" / name)
        for name, text in {"CMakePresets.json": PRESETS, "CMakeLists.txt": PROJECT, "sums.c": SOURCE, ".gitignore": "/build/\n",
                           "tests/README.md": "# Tests\n"}.items():
            (self.root / name).write_text(text)

    def run_with(self, mutations, *arguments):
        (self.root / "tests/mutations/sums.toml").write_text(mutations)
        return subprocess.run([sys.executable, self.root / "tests/mutations/run", *arguments], capture_output=True, text=True,
                              check=False)

    def check(self, mutations, finding):
        self.run_with(mutations, "--readme")
        done = self.run_with(mutations, "--check")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(finding, done.stdout)

    def test_only_a_red_test_counts(self):
        done = self.run_with(NOTICED + UNNOTICED + UNBUILDABLE)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^ok   wrong-sum: red: sums ")
        self.assertRegex(done.stdout, r"(?m)^FAIL other-number: NO TEST of '\^sums\$' noticed it ")
        self.assertRegex(done.stdout, r"(?m)^FAIL no-number: does not build; ")
        self.assertRegex(done.stdout, r"(?m)^1 passed, 2 failed$")
        self.assertEqual((self.root / "sums.c").read_text(), SOURCE)
        done = self.run_with(NOTICED + UNNOTICED, "wrong-sum")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "1 passed, 0 failed"), done.stderr)

    def test_a_test_that_is_red_before_counts_for_nothing(self):
        (self.root / "sums.c").write_text(SOURCE.replace("== 3", "== 4"))
        done = self.run_with(NOTICED)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("red before anything was broken: sums", done.stderr)

    def test_what_cannot_be_made_is_found_without_a_build(self):
        self.run_with(NOTICED, "--readme")
        self.assertEqual(self.run_with(NOTICED, "--check").returncode, 0)
        done = self.run_with(NOTICED + UNNOTICED, "--check")
        self.assertIn("tests/README.md does not list the mutations as they are", done.stdout)
        self.check(mutation("gone", "7", "8"), "its text occurs 0 times in sums.c")
        self.check(mutation("twice", "1", "8"), "its text occurs 2 times in sums.c")
        self.check(mutation("same", "1 + 2", "1 + 2"), "changes nothing")
        self.check(NOTICED + NOTICED, "the name must be its own")
        self.check(NOTICED.replace("breaks", "why"), "needs exactly these texts")


if __name__ == "__main__":
    if importlib.util.find_spec("tomllib") is None:
        print("[cairn] skipped meta.mutations_run: Python 3.11 or newer is needed to read TOML")
        sys.exit(77)
    unittest.main()
