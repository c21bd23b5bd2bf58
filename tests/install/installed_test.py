"""The installed static library: its files, also after they are moved, and examples built
by find_package and pkg-config."""

import os
import unittest

from example import BINARY, HEADERS, PAGES, TRAINER, ExampleTest, files_below, output_of


class Installed(ExampleTest):
    def install(self):
        first = self.folder / "first"
        output_of("cmake", "--install", BINARY, "--prefix", first)
        moved = self.folder / "moved"
        first.rename(moved)
        return moved

    @unittest.skipUnless(os.environ["CAIRN_STATIC_LIBRARY"], "this build makes the shared library")
    def test_static(self):
        prefix = self.install()
        targets = {path.name for path in (prefix / "lib/cmake/cairn").glob("cairnTargets-*.cmake")}
        self.assertEqual(len(targets), 1)
        package = {f"lib/cmake/cairn/{name}" for name in
                   {"cairnConfig.cmake", "cairnConfigVersion.cmake", "cairnTargets.cmake"} | targets}
        shared = {f"share/{name}" for name in files_below(BINARY / "share")}
        self.assertLessEqual({"share/man/man1/cairn-demo-save.1", "share/bash-completion/completions/cairn",
                              "share/zsh/site-functions/_cairn", "share/fish/vendor_completions.d/cairn.fish"}, shared)
        self.assertEqual(files_below(prefix),
                         HEADERS | PAGES | package | shared | {"bin/cairn", "lib/libcairn.a", "lib/pkgconfig/cairn.pc"})
        self.assertIn("cairn ", output_of(prefix / "bin/cairn", "--version"))

        build = self.configure(f"-DCMAKE_PREFIX_PATH={prefix}")
        self.check_runs(build / "hello")

        build = self.configure(f"-DCMAKE_PREFIX_PATH={prefix}", example=TRAINER)
        self.check_trains(build / "trainer")

        flags = self.pkg_config(prefix, "--static")
        self.check_runs(self.compile("by-pkg-config", *flags))
        self.compile("in-a-library.so", "-fPIC", "-shared", *flags)


if __name__ == "__main__":
    unittest.main(verbosity=2)
