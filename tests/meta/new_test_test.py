"""scripts/new-test in a copy of the tree: its files are registered, compile, and fail until they are written."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from registration_check import programs_by_source
from tree import tracked_files

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LEFT_OUT = ("tests/data/", "tests/fuzz/", "bench/results/")  # large, and not needed to configure


class NewTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir=".")
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name).resolve()
        for name in tracked_files(SOURCE):
            if not name.startswith(LEFT_OUT):
                (cls.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(SOURCE / name, cls.root / name)
        subprocess.run(["git", "init", "-q"], cwd=cls.root, check=True)

    def new_test(self, *arguments):
        return subprocess.run([sys.executable, self.root / "scripts/new-test", *arguments], capture_output=True, text=True,
                              check=False)

    def make(self, *arguments):
        done = self.new_test(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refused(self, why, *arguments):
        before = tracked_files(self.root)
        done = self.new_test(*arguments)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn(why, done.stderr)
        self.assertEqual(tracked_files(self.root), before)

    def listed(self, build):
        done = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, capture_output=True, text=True, check=True)
        return {test["name"] for test in json.loads(done.stdout)["tests"]}

    def compile(self, build, source):
        """Compiles as the build does, without making an object."""
        entry = next(entry for entry in json.loads((build / "compile_commands.json").read_text())
                     if entry["file"].endswith(source))
        done = subprocess.run(entry["command"] + " -fsyntax-only", shell=True, cwd=entry["directory"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def unformatted(self, sources):
        """clang-format's findings in them; nothing without the version that formats this tree."""
        version = shutil.which("clang-format") and subprocess.run(["clang-format", "--version"], capture_output=True,
                                                                  text=True, check=True).stdout
        if not version or "version 14." not in version:
            return ""
        return subprocess.run(["clang-format", "--dry-run", "-Werror", *sources], capture_output=True, text=True,
                              check=False).stderr

    def test_what_it_makes_is_part_of_the_build(self):
        rooms = sorted(path.parent.name for path in SOURCE.glob("src/*/CMakeLists.txt"))
        for room in rooms:
            self.assertIn("ctest --test-dir build/dev -R ", self.make(room, f"fresh_{room}"))
        said = self.make("comm", "fresh_ranks", "--mpi", "1", "3")
        self.assertIn("cmake --build --preset dev --target mpi_test_fresh_ranks\n", said)
        self.assertIn("GTEST_FILTER='FreshRanks.*' ctest --test-dir build/dev -R '^fresh_ranks\\.np'", said)
        self.make("format", "fresh_name_of_so_many_words_that_its_case_would_need_more_than_a_line")
        for room in ("cli", "interop", "slurm", "meta"):
            self.make(room, "fresh_script", "--python")
        build = self.root / "build/dev"
        configured = subprocess.run(["cmake", "--preset", "dev", "-DCAIRN_CUDA=OFF", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON"],
                                    cwd=self.root, capture_output=True, text=True, check=False)
        self.assertEqual(configured.returncode, 0, configured.stdout + configured.stderr)
        names = self.listed(build)
        self.assertLessEqual({"fresh_ranks.np1", "fresh_ranks.np3", "cli.fresh_script", "interop.fresh_script",
                              "slurm.fresh_script", "meta.fresh_script"}, names)
        programs = programs_by_source(build)
        sources = [*self.root.glob("tests/**/fresh_*_test.cpp")]
        self.assertEqual([source for source in sources if source not in programs], [])
        self.assertEqual(len(sources), len(rooms) + 2)
        self.assertEqual(self.unformatted(sources), "")
        self.compile(build, "unit/format/fresh_format_test.cpp")
        self.compile(build, "mpi/comm/fresh_ranks_test.cpp")
        red = subprocess.run([sys.executable, self.root / "tests/meta/fresh_script_test.py"], capture_output=True, text=True,
                             check=False)
        self.assertNotEqual(red.returncode, 0)
        self.assertIn("write the first case", red.stderr)
        self.refused("is there already", "format", "fresh_format")
        self.refused("a test of the name fresh_ranks already", "io", "fresh_ranks", "--mpi", "2")

    def test_what_it_refuses(self):
        self.refused("there is no src/nowhere; rooms are ", "nowhere", "a")
        for name in ("Upper", "two words", "a_test", "../a", ""):
            self.refused("is not a name in lower case", "format", name)
        self.refused("counts of at least 1", "comm", "a", "--mpi", "0")
        self.refused("--python is for cli, interop", "format", "a", "--python")


if __name__ == "__main__":
    unittest.main()
