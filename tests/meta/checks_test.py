"""Each check of this folder finds the faults in small broken trees, one per rule, and none in a good tree."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
HEADER = "// What it is.\n#pragma once\n"
README = """| folder | what it is | may include |
|---|---|---|
| `base` | errors | – |
| `plan` | plans: pure | base |
| `io` | engines | plan base |
| `checkpoint` | joins | all above |
| `cli` | options | checkpoint and below |
"""


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=".")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        # A repository of its own; otherwise git would use the surrounding one.
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)

    def write(self, name, text, mode=0o644):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def run_check(self, script, *more):
        done = subprocess.run([sys.executable, HERE / script, "--source", self.root, *more],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def assert_clean(self, script, *more):
        status, output = self.run_check(script, *more)
        self.assertEqual((status, output.count("\n")), (0, 1), output)

    def assert_finds(self, text, script, *more):
        status, output = self.run_check(script, *more)
        self.assertEqual(status, 1, output)
        self.assertIn(text, output)


class LayersCheck(Tree):
    def setUp(self):
        super().setUp()
        self.write("src/README.md", README)
        self.write("src/base/a.hpp", '#include <vector>\n#include "cairn/error.hpp"\n')
        self.write("src/plan/b.hpp", '#include "base/a.hpp"\n#include "plan/c.hpp"\n')
        self.write("src/io/d.cpp", '#include <mpi.h>\n#include "plan/b.hpp"\n')
        self.write("src/cli/e.cpp", '#include "io/d.hpp"\n#include "base/a.hpp"\n')
        self.write("include/cairn/error.hpp", '#include <mpi.h>\n#include <vector>\n#include "cairn/box.hpp"\n')

    def check(self, text):
        self.assert_finds(text, "layers_check.py")

    def test_good_tree(self):
        self.assert_clean("layers_check.py")

    def test_include_up(self):
        self.write("src/base/a.hpp", '\n#include "io/d.hpp"\n')
        self.check('src/base/a.hpp:2: "io/d.hpp": base may not include io (only nothing)')

    def write_walk(self, *steps):
        self.write("src/io/engine.cpp", "void Engine::write() { put(); }\n")
        self.write("src/io/put.cpp", "void put() {}\n")
        self.write("src/README.md", README + "\n" + "\n".join(steps) + "\n")

    def test_good_walk(self):
        self.write_walk("1. `Engine::write` (`io/engine.cpp`)", "2. `put` (`io/put.cpp`): bytes")
        self.assert_clean("layers_check.py")

    def test_walk_to_a_file_that_is_gone(self):
        self.write_walk("1. `Engine::write` (`io/gone.cpp`)")
        self.check("1. `Engine::write`: there is no src/io/gone.cpp")

    def test_walk_by_a_function_that_is_gone(self):
        self.write_walk("1. `Engine::write` (`io/engine.cpp`)", "2. `place` (`io/put.cpp`)")
        self.check("2. `place` is not in src/io/put.cpp")

    def test_walk_to_what_nobody_calls(self):
        self.write_walk("1. `put` (`io/put.cpp`)", "2. `Engine::write` (`io/engine.cpp`)")
        self.check("2. `Engine::write` is not called in the file of an earlier step")

    def test_walk_that_is_too_long(self):
        self.write_walk(*[f"{number}. `put` (`io/put.cpp`)" for number in range(1, 12)])
        self.check("11. `put`: a walk has at most 10 calls")

    def test_include_sideways(self):
        self.write("src/README.md", README.replace("plan base", "base"))
        self.check('"plan/b.hpp": io may not include plan')

    def test_include_without_layer(self):
        self.write("src/io/f.hpp", '#include "d.hpp"\n')
        self.check("write the layer in front")

    def test_include_by_relative_path(self):
        self.write("src/base/f.hpp", '#  include "base/../io/d.hpp"\n')
        self.check("write the layer in front")

    def test_public_header_includes_source(self):
        self.write("include/cairn/error.hpp", '#include "base/a.hpp"\n')
        self.check('may include only "cairn/..."')

    def test_public_header_includes_a_library(self):
        for name in ("fmt/core.h", "nlohmann/json.hpp", "cuda.h"):
            with self.subTest(name):
                self.write("include/cairn/error.hpp", f"#include <{name}>\n")
                self.check(f"include/cairn/error.hpp:1: <{name}>: include/cairn needs no library but MPI")

    def test_pure_layer_opens_files(self):
        self.write("src/plan/g.cpp", "#include <fstream>\n")
        self.check("<fstream> in plan, which is pure")

    def test_folder_without_row(self):
        self.write("src/extra/g.cpp", "\n")
        self.check("folder extra is not in the table")

    def test_cmake_links_up(self):
        self.write("src/plan/CMakeLists.txt", "cairn_layer(NAME plan SOURCES b.cpp LAYERS base io)\n")
        self.check("LAYERS io: plan may not use io")

    def test_no_table(self):
        self.write("src/README.md", "nothing\n")
        self.check("no table of layers")


class RegistrationCheck(Tree):
    def setUp(self):
        super().setUp()
        self.write(".gitignore", "/build/\n")
        self.write("tests/a_test.cpp", "")
        self.write("tests/b_test.py", "")
        self.write("build/bin/test_a", "#!/bin/sh\n", mode=0o755)
        self.build(sources={"tests/a_test.cpp": "test_a"},
                   commands=[["${ROOT}/build/bin/test_a"], ["python3", "${ROOT}/tests/b_test.py"]])

    def build(self, sources, commands):
        entries = [{"directory": str(self.root), "file": str(self.root / source), "command": "c++",
                    "output": f"tests/CMakeFiles/{target}.dir/x.o"} for source, target in sources.items()]
        self.write("build/compile_commands.json", json.dumps(entries))
        lines = []
        for number, words in enumerate(commands):
            quoted = " ".join(f'"{word}"' for word in words).replace("${ROOT}", str(self.root))
            lines.append(f'add_test(t{number} {quoted})\n')
        self.write("build/CTestTestfile.cmake", "".join(lines))

    def check(self, text):
        self.assert_finds(text, "registration_check.py", "--build", self.root / "build")

    def test_good_tree(self):
        self.assert_clean("registration_check.py", "--build", self.root / "build")

    def test_source_in_no_target(self):
        self.write("tests/deep/c_test.cpp", "")
        self.check("tests/deep/c_test.cpp: compiled into no target")

    def test_target_that_no_test_starts(self):
        self.build(sources={"tests/a_test.cpp": "test_a"}, commands=[["python3", "${ROOT}/tests/b_test.py"]])
        self.check("tests/a_test.cpp: part of test_a, which no ctest entry starts")

    def test_python_test_in_no_command(self):
        self.write("tests/d_test.py", "")
        self.check("tests/d_test.py: in the command of no ctest entry")


class FilesCheck(Tree):
    def test_good_tree(self):
        self.write("src/a.hpp", HEADER)
        self.assert_clean("files_check.py")

    def test_too_long(self):
        self.write("src/a.cpp", "\n" * 601)
        self.assert_finds("src/a.cpp: 601 lines; split it", "files_check.py")

    def test_long_is_named(self):
        self.write("src/a.cpp", "\n" * 401)
        status, output = self.run_check("files_check.py")
        self.assertEqual(status, 0)
        self.assertIn("src/a.cpp: 401 lines, over 400", output)

    def test_header_without_comment(self):
        self.write("src/a.hpp", "#pragma once\n")
        self.assert_finds("does not begin with a comment", "files_check.py")

    def test_header_without_guard(self):
        self.write("src/a.hpp", "// What it is.\n")
        self.assert_finds("no #pragma once", "files_check.py")

    def test_empty_tree(self):
        self.assert_finds("no source file found", "files_check.py")


class WordsCheck(Tree):
    def test_good_tree(self):
        self.write("a.md", "A network/worker, ~/root and the form nowhere.\n")
        self.assert_clean("words_check.py")

    def test_each_word(self):
        words = ["../sha" + "red/x", "/wo" + "rk/x", "(/ro" + "ot/x", "/ho" + "me/x", "TO" + "DO", "fix" + "me",
                 "Not imple" + "mented", "place" + "holders", "for n" + "ow", "--index" + "-url"]
        for word in words:
            with self.subTest(word):
                self.write("docs/a.md", f"one\ntwo {word} three\n")
                self.assert_finds("docs/a.md:2: '", "words_check.py")

    def test_data_may_hold_any_word_but_no_machine(self):
        self.write("tests/data/a.json", "place" + "holder\n")
        self.assert_clean("words_check.py")
        self.write("tests/data/a.json", "/wo" + "rk/x\n")
        self.assert_finds("tests/data/a.json:1", "words_check.py")


class FormatsCheck(Tree):
    def test_a_system_in_its_own_files(self):
        self.write("src/interop/paddle/a.cpp", "// PaddlePaddle\n")
        self.write("src/interop/dialects.cpp", "system(paddle)\n")
        self.assert_clean("formats_check.py")

    def test_a_system_elsewhere(self):
        for path in ("src/plan/a.cpp", "src/interop/directory.cpp", "src/interop/mindspore/a.cpp", "src/quant/codec.hpp"):
            with self.subTest(path):
                self.write(path, "\nint paddle_size;\n")
                self.assert_finds(f"{path}:2: names paddle", "formats_check.py")

    def test_empty_tree(self):
        self.assert_finds("no file of src found", "formats_check.py")


class SystemsCheck(Tree):
    def test_good_tree(self):
        self.write("src/a.cpp", "descriptor = ::open(path, O_RDONLY | O_CLOEXEC);\nwake_.wait_for(lock, tick);\n"
                                "thread_ = os::start_thread(work);  // not std::thread(work)\nvoid FileReader::open(int a);\n")
        self.assert_clean("systems_check.py")

    def test_each_rule(self):
        for text, finding in (("std::thread t; std::thread(work).detach();", "start_thread"),
                              ("A::A() : thread_([this] { work(); }) {}", "start_thread"),
                              ("auto now = std::chrono::system_clock::now();", "steady_clock"),
                              ("const int d = ::open(path, O_RDONLY);", "O_CLOEXEC"),
                              ("std::condition_variable c;\nc.wait_for(lock, tick);", "os::Condition")):
            with self.subTest(text):
                self.write("src/a.cpp", text + "\n")
                self.assert_finds(finding, "systems_check.py")

    def test_a_condition_of_the_header(self):
        self.write("src/a.hpp", "std::condition_variable wake_;\n")
        self.write("src/a.cpp", "wake_.wait_until(lock, time);\n")
        self.assert_finds("src/a.cpp:1: ", "systems_check.py")

    def test_empty_tree(self):
        self.assert_finds("no source found", "systems_check.py")


class ReferencesCheck(Tree):
    def setUp(self):
        super().setUp()
        self.write("src/io/engine.hpp", "// See engine.cpp, io/engine.cpp and src/io.\n")
        self.write("src/io/engine.cpp", '#include "gone.hpp"\nint x = gone / 2;  // https://example.com/gone.cpp\n')
        self.write("src/io/kernels.cu", "")
        self.write("bench/run.py", 'NAME = "gone.py"\n')
        self.write("src/README.md", "`io/engine`, `io/engine.{hpp,cpp}`, `io/eng*.hpp`, `<NAME>_test.py`, [io](io#engine)\n")

    def test_good_tree(self):
        self.assert_clean("references_check.py")

    def test_each_place(self):
        for name, text, finding in [
                ("src/io/a.cpp", "// as gone.hpp has it\n", "gone.hpp"),
                ("src/io/a.cpp", "int x;  // io/gone.cu\n", "io/gone.cu"),
                ("src/io/a.cpp", "// checkpoint/engine.hpp\n", "checkpoint/engine.hpp"),
                ("src/io/a.cpp", "// one of engine.{hpp,cuh}\n", "engine.cuh"),
                ("src/io/CMakeLists.txt", "# made by gone.py\n", "gone.py"),
                ("bench/a.py", '"""The functions of src/io/gone."""\n', "src/io/gone"),
                ("bench/a.py", "# tests/gone has them\n", "tests/gone"),
                ("a.md", "`io/gone` does it\n", "io/gone"),
                ("a.md", "`src/gone*.cpp`\n", "src/gone*.cpp")]:
            with self.subTest(text):
                self.write(name, text)
                self.assert_finds(f"{name}:1: there is no {finding}", "references_check.py")
                (self.root / name).unlink()

    def test_tests_that_pages_name(self):
        self.write("tests/io/a_test.cpp", "TEST(Suite, Name) {}\nTEST_P(OfParameters,\n       Name) {}\n")
        self.write("tests/io/b_test.py", "class Case(unittest.TestCase):\n    def test_one(self):\n        pass\n")
        self.write("tests/README.md", "`Suite.Name`, `OfParameters.Name`, `Case.test_one`, `Options::limits.a`\n")
        self.assert_clean("references_check.py")
        for name in ("Suite.Gone", "Other.Name", "Case.test_gone", "Other.test_one"):
            with self.subTest(name):
                self.write("tests/README.md", f"text\n`{name}`\n")
                self.assert_finds(f"tests/README.md:2: there is no test {name}", "references_check.py")

    def test_link(self):
        self.write("a.md", "[page](src/GONE.md#part), [other](https://example.com)\n")
        self.assert_finds("a.md:1: the link to src/GONE.md leads nowhere", "references_check.py")

    def test_no_name(self):
        self.write("src/io/engine.hpp", "")
        self.write("src/README.md", "")
        self.assert_finds("no name of a file found", "references_check.py")


class ScriptsCheck(Tree):
    def setUp(self):
        super().setUp()
        for name in ("scripts/demo", "scripts/test", ".ci/run"):
            self.write(name, "#!/usr/bin/env bash\ntrue\n", mode=0o755)
        self.write("scripts/lib.sh", "true\n")

    def test_good_tree(self):
        self.assert_clean("scripts_check.py")

    def test_not_executable(self):
        self.write("scripts/demo", "#!/usr/bin/env bash\n")
        self.assert_finds("scripts/demo: has a #! line but is not executable", "scripts_check.py")

    def test_executable_without_interpreter(self):
        self.write("scripts/lib.sh", "true\n", mode=0o755)
        self.assert_finds("scripts/lib.sh: is executable without #!", "scripts_check.py")

    def test_missing(self):
        (self.root / ".ci/run").unlink()
        self.assert_finds(".ci/run is missing", "scripts_check.py")

    def test_syntax_error(self):
        self.write("scripts/lib.sh", "if true; then\n")
        self.assert_finds("syntax error", "scripts_check.py")


class VariablesCheck(Tree):
    PAGE = ("### Environment variables\n\n| variable | for |\n|---|---|\n| `CAIRN_A`, `CAIRN_B` | `CAIRN_Z` |\n| `CAIRN_C` | |\n"
            "| `CAIRN` | |\n| `CAIRN_D` | |\n\n### CMake options\n\n| `CAIRN_X` | |\n| `CAIRN_Y`, `CAIRN_W` | |\n\n"
            "### Presets\n\n| `dev` | |\n")

    def setUp(self):
        super().setUp()
        self.write("CONTRIBUTING.md", self.PAGE)
        self.write("CMakePresets.json", '{"configurePresets": [{"name": "base", "hidden": true}, {"name": "dev"}]}')
        self.write("CMakeLists.txt", 'option(CAIRN_X "X" ON)\nset(CAIRN_W "" CACHE STRING "W")\nset(CAIRN_Q 1)\n'
                                     '  find_program(CAIRN_Y y)\nmessage("$ENV{CAIRN_D}")\n')
        self.write("src/a.cpp", '#define CAIRN_MACRO 1\nconst char* a = std::getenv("CAIRN_A");  // "CAIRN_A is wrong"\n')
        self.write("tests/a.py", "os.environ['CAIRN_B']\nstart(CAIRN_SET=1)\n")
        self.write("scripts/run", "#!/usr/bin/env bash\necho ${CAIRN_C:-} ${CAIRN:-cairn}\n", mode=0o755)

    def test_good_tree(self):
        self.assert_clean("variables_check.py")

    def test_each_kind_that_is_not_listed(self):
        for name, text, finding in [
                ("src/b.hpp", 'constexpr const char* kName = "CAIRN_NEW";\n', "'Environment variables' lacks CAIRN_NEW, which src/b.hpp"),
                ("tests/b.py", 'os.environ.get("CAIRN_NEW")\n', "lacks CAIRN_NEW, which tests/b.py reads"),
                ("slurm/b.sbatch", "echo $CAIRN_NEW\n", "lacks CAIRN_NEW, which slurm/b.sbatch reads"),
                ("bench/run", "#!/bin/bash\necho \"${CAIRN_NEW}\"\n", "lacks CAIRN_NEW, which bench/run reads"),
                ("cmake/b.cmake", "if(DEFINED ENV{CAIRN_NEW})\n", "lacks CAIRN_NEW, which cmake/b.cmake reads"),
                ("cmake/b.cmake", 'option(CAIRN_NEW "New" ON)\n', "'CMake options' lacks CAIRN_NEW"),
                ("cmake/b.cmake", 'set(CAIRN_NEW "" CACHE PATH "New")\n', "'CMake options' lacks CAIRN_NEW"),
                ("cmake/b.cmake", "find_program(CAIRN_NEW new)\n", "'CMake options' lacks CAIRN_NEW")]:
            with self.subTest(text):
                self.write(name, text)
                self.assert_finds(finding, "variables_check.py")
                (self.root / name).unlink()
        self.write("CMakePresets.json", '{"configurePresets": [{"name": "dev"}, {"name": "quick"}]}')
        self.assert_finds("'Presets' lacks quick", "variables_check.py")

    def test_what_is_listed_and_gone(self):
        for old, finding in (("`CAIRN_C`", "'Environment variables' lists CAIRN_GONE, which nothing reads"),
                             ("`CAIRN_X`", "'CMake options' lists CAIRN_GONE"), ("`dev`", "'Presets' lists gone")):
            with self.subTest(old):
                gone = "`gone`" if old == "`dev`" else "`CAIRN_GONE`"
                self.write("CONTRIBUTING.md", self.PAGE.replace(old, f"{old}, {gone}"))
                self.assert_finds(finding, "variables_check.py")
        self.write("CONTRIBUTING.md", self.PAGE.replace("`CAIRN_X`", "`CAIRN_X`, `CAIRN_W`"))
        self.assert_finds("'CMake options' lists CAIRN_W twice", "variables_check.py")


if __name__ == "__main__":
    unittest.main()
