"""comments_check.py finds lines that are too long and phrases that a native editor would strike out, and accepts plain
sentences, strings and code."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

from comments_check import comments, faults_of, long_lines

CHECK = pathlib.Path(__file__).resolve().parent / "comments_check.py"
BAD = [  # one for each pattern
    "The same in two parts, for who has something to do between them.",
    "Who waits for copied bytes hears of them in such steps.",
    "Returns at once. Who waits is woken.",
    "Where nobody listens a report is one test of a pointer.",
    "It is made by exclusive creation by who takes the lease for the n-th time.",
    "Of load_latest(): the checkpoints before which it tried to load.",
    "Throws. Of several the first one counts.",
    "One that was taken for dead may go on all the same.",
    "Error(kFormat) for a config.json that is none.",
    "What it has open after an Error that is none of an engine's is closed by close_after_error().",
    "What a storage server remembers is not measured.",
    "Closes it. What is left stays there.",
    "Throws nothing that open_here() is to word.",
    "'{}' is no list of processors.",
    "A save under way is none of theirs.",
    "A few bytes of the late memory.",
    "Windows of a plan that is kept meanwhile.",
    "What a save does when replicas differ.",
    "How long a call waits.",
    "Which ranks see the file.",
    "Why a name is refused, or null.",
    "Writes other bytes than the state's.",
    "A target of another dtype than the tensor's.",
]
GOOD = [
    "Files other than safetensors; one rank on another node rather than two.",
    "What is it? Who knows?",
    "Windows of a plan that stays alive; reused where they are large enough.",
    "Without a listener a report costs one pointer test.",
    "There is no other file, and the lease is no longer held by a rank who left.",
    "Of course it may fail. The rank that waits is told what to do.",
    "See README.md. Offsets are bytes.",
]


class CommentsCheck(unittest.TestCase):
    def test_turns(self):
        for text in BAD:
            with self.subTest(text):
                self.assertTrue(faults_of(text))
        for text in GOOD:
            with self.subTest(text):
                self.assertEqual(faults_of(text), [])

    def test_comments_are_found_and_joined(self):
        text = ('int a;  // one of a line\n// Where no\n// body waits for\n// who comes.\n//\n// Next.\n//   - item\n'
                'const char* s = "// nobody";\nconst char c = \'"\';  ///< member\n/* block\n * more */\n'
                'auto r = R"x(// nobody " )x";\n')
        self.assertEqual(comments(text), [(1, "one of a line"), (2, "Where no body waits for who comes."), (5, ""), (6, "Next."),
                                          (7, "- item"), (9, "member"), (10, "block more")])

    def test_long_lines(self):
        long = "x" * 120
        self.assertEqual(long_lines(f"int a;\n// {long}\nint b;  // {long}\n"), [(2, 123), (3, 131)])
        self.assertEqual(long_lines(f'auto a = "{long}";\n// {long[:117]}\n'), [])
        self.assertEqual(long_lines(f'auto a = R"(// {long})";\n'), [])
        self.assertEqual(long_lines(f"/* a\n{long}x */\n"), [(2, 124)])

    def check(self, name, text):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True)
            path.write_text(text)
            done = subprocess.run([sys.executable, CHECK, "--source", folder], capture_output=True, text=True, check=False)
            self.assertEqual(done.stderr, "")
            return done.returncode, done.stdout

    def test_the_tree(self):
        for name in ("src/io/a.cpp", "include/cairn/a.hpp", "apps/cairn/a.cpp", "bench/a.cu", "tests/unit/a.hpp"):
            self.assertEqual(self.check(name, "// Plain.\n"), (0, "1 comments checked\n"))
            status, output = self.check(name, "// Plain.\n\n// Asks nobody.\n// " + "x" * 120 + "\n")
            self.assertEqual(status, 1)
            self.assertIn(f"{name}:3: 'nobody': write 'no rank', 'no caller'\n", output)
            self.assertIn(f"{name}:4: 123 columns; break the comment by hand", output)
        self.assertEqual(self.check("tests/data/a.cpp", "// nobody\n"), (1, "0 comments checked\nno comment found\n"))


if __name__ == "__main__":
    unittest.main()
