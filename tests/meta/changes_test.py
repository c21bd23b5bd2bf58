"""Change notes are well formed, and scripts/collect-changes turns them into the section of a release
without losing a line."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CHANGELOG = """# Changelog

## [Unreleased]

### Fixed

- Old fault,
  in two lines.

## [0.1.0] - 2026-01-02

### Added

- All of it.
"""
NOTE = """### Added

- New `thing`.

### Fixed

- New fault.
"""


class Changes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=".")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        (self.root / "changes").mkdir()
        self.write("changes/README.md", "# Change notes\n")
        self.write("CHANGELOG.md", CHANGELOG)
        self.write("CMakeLists.txt", "project(cairn VERSION 0.2.0 LANGUAGES CXX)\n")

    def write(self, name, text):
        (self.root / name).write_text(text)

    def collect(self, *arguments, root=None):
        done = subprocess.run([sys.executable, SOURCE / "scripts/collect-changes", "--root", root or self.root, *arguments],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def refused(self, finding, *arguments):
        before = (self.root / "CHANGELOG.md").read_text()
        status, output = self.collect(*arguments)
        self.assertEqual((status, output.count("\n")), (1, 1), output)
        self.assertIn(finding, output)
        self.assertEqual((self.root / "CHANGELOG.md").read_text(), before)

    def test_those_of_this_tree(self):
        status, output = self.collect("--check", root=SOURCE)
        self.assertEqual(status, 0, output)

    def test_a_release(self):
        self.write("changes/a-thing.md", NOTE)
        self.write("changes/b.md", "### Removed\n\n- The old thing.\n")
        status, draft = self.collect("--draft")
        self.assertEqual(status, 0, draft)
        self.assertEqual((self.root / "CHANGELOG.md").read_text(), CHANGELOG)
        status, output = self.collect()
        self.assertEqual(status, 0, output)
        text = (self.root / "CHANGELOG.md").read_text()
        heading = r"(?ms)^## \[Unreleased\]\n\n## \[0\.2\.0\] - \d{4}-\d\d-\d\d\n\n### Added\n\n- New `thing`\.\n\n### Removed\n"
        self.assertRegex(text, heading)
        self.assertIn("### Fixed\n\n- Old fault,\n  in two lines.\n- New fault.\n\n## [0.1.0] - 2026-01-02\n", text)
        self.assertIn(draft, text)
        self.assertEqual([path.name for path in (self.root / "changes").iterdir()], ["README.md"])
        self.refused("has a section [0.2.0] already")

    def test_a_release_without_a_change(self):
        self.write("CHANGELOG.md", CHANGELOG.replace("### Fixed\n\n- Old fault,\n  in two lines.\n\n", ""))
        self.refused("nothing has changed")

    def test_notes_that_are_not_well_formed(self):
        for name, text, finding in [
                ("a.md", "", "changes/a.md: has no heading"),
                ("a.md", "- Item.\n", "changes/a.md:1: not a heading"),
                ("a.md", "### New\n\n- Item.\n", "changes/a.md:1: 'New' is not one of Added, "),
                ("a.md", "### Added\n\nText.\n", "changes/a.md:3: not a heading"),
                ("a.md", "### Added\n\n  Text.\n", "changes/a.md:3: not a heading"),
                ("a.md", "## Added\n", "changes/a.md:1: not a heading"),
                ("a.md", "### Added\n", "changes/a.md: 'Added' has no item"),
                ("a.md", "### Added\n\n- A.\n\n### Added\n\n- B.\n", "changes/a.md:5: 'Added' is there already"),
                ("A_b.md", NOTE, "changes/A_b.md: name it after its topic"),
                ("a.txt", NOTE, "changes/a.txt: name it after its topic")]:
            with self.subTest(text):
                self.write(f"changes/{name}", text)
                self.refused(finding, "--check")
                self.refused(finding)
                (self.root / "changes" / name).unlink()

    def test_a_changelog_without_its_heading(self):
        self.write("CHANGELOG.md", CHANGELOG.replace("[Unreleased]", "Unreleased"))
        self.refused("needs one heading", "--check")


if __name__ == "__main__":
    unittest.main()
