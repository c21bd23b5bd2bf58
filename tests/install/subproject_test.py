"""examples/hello with Cairn's source as a part of its build, and with the shared library that such a build installs.

This build alone compiles all of the library once more: as in a project that sets no build type, so without
optimisation, and without CUDA, whose kernels take long."""

import os
import re
import unittest

from example import HEADERS, PAGES, SOURCE, VERSION, ExampleTest, files_below, output_of, public_functions


class Subproject(ExampleTest):
    def test_shared(self):
        build = self.configure(f"-DCAIRN_SOURCE={SOURCE}", "-DBUILD_SHARED_LIBS=ON", "-DCAIRN_INSTALL=ON",
                               "-DCAIRN_CUDA=OFF")
        self.check_outer_project(build)
        self.check_runs(build / "hello")

        prefix = self.folder / "prefix"
        output_of("cmake", "--install", build, "--prefix", prefix)
        series = ".".join(VERSION.split(".")[:2])
        library = prefix / f"lib/libcairn.so.{VERSION}"
        package = {name for name in files_below(prefix) if name.startswith("lib/cmake/cairn/")}
        self.assertEqual(files_below(prefix) - package, HEADERS | PAGES | {
            "lib/libcairn.so", f"lib/libcairn.so.{series}", f"lib/libcairn.so.{VERSION}", "lib/pkgconfig/cairn.pc"})
        self.assertIn(f"soname: [libcairn.so.{series}]", output_of("readelf", "-d", library))
        self.check_exports(library)

        flags = self.pkg_config(prefix)
        self.assertEqual([flag for flag in flags if flag.startswith("-l")], ["-lcairn"])
        self.check_runs(self.compile("by-pkg-config", *flags), LD_LIBRARY_PATH=str(prefix / "lib"))

    def check_outer_project(self, build):
        """The build decided nothing for the project, and built nothing that it did not request."""
        cache = (build / "CMakeCache.txt").read_text()
        self.assertRegex(cache, r"(?m)^CMAKE_BUILD_TYPE:STRING=$")
        self.assertTrue((build / "hello").exists(), "the program was put elsewhere")
        self.assertFalse((build / "compile_commands.json").exists())
        made = [path.name for path in (build / "_deps/cairn-build").rglob("*")
                if path.is_file() and not path.is_symlink() and os.access(path, os.X_OK) and path.name != "a.out"]
        self.assertEqual(made, [f"libcairn.so.{VERSION}"])  # no program, no tests; a.out: CMake tries compilers

    def check_exports(self, library):
        """The functions of the public headers, and otherwise only symbols needed to call them
        and to catch cairn::Error."""
        exported = output_of("nm", "-DC", "--defined-only", library)
        others = [line for line in exported.splitlines() if " T " not in line]
        for line in others:
            self.assertRegex(line, r" [VWu] ((typeinfo|typeinfo name|vtable) for cairn::Error|cairn::Checkpointer::\w+::)")
        for name in re.findall(r" T (.*)", exported):
            self.assertIn(name, public_functions(exported))
        self.assertTrue(public_functions(exported))
        static = os.environ["CAIRN_STATIC_LIBRARY"]
        if static:  # a function missing in exported.map
            self.assertEqual(public_functions(exported), public_functions(output_of("nm", "-C", static)),
                             "src/exported.map does not list what include/cairn declares")


if __name__ == "__main__":
    unittest.main(verbosity=2)
