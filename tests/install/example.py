"""Helpers of this folder's tests: build an example, mostly examples/hello, in one of several ways, and run it."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import unittest

SOURCE = pathlib.Path(os.environ["CAIRN_SOURCE_DIR"])
BINARY = pathlib.Path(os.environ["CAIRN_BINARY_DIR"])
VERSION = os.environ["CAIRN_VERSION"]
EXAMPLE = SOURCE / "examples/hello"
TRAINER = SOURCE / "examples/trainer"
PAGES = {f"share/doc/cairn/{name}" for name in ("LICENSE", "README.md", "CHANGELOG.md", "FORMAT.md")} | {
    f"share/cairn/slurm/{name}" for name in ("README.md", "bench.sbatch", "train.sbatch")}
HEADERS = {f"include/cairn/{path.name}" for path in (SOURCE / "include/cairn").glob("*.h*")}


def output_of(*command, **options):
    """Standard output of a command that must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        raise AssertionError(f"{shlex.join(words)}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def public_functions(symbols):
    """The functions of namespace cairn itself in the output of `nm -C`, without inline and private ones."""
    found = set()
    for line in symbols.splitlines():
        match = re.search(r" T (cairn::(?!Checkpointer::State|SaveTicket::S)(?![a-z_0-9]+::).*)", line)
        if match:
            found.add(match[1])
    return found


class ExampleTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path.cwd() / self.id().rsplit(".", 1)[-1]
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()

    def configure(self, *settings, example=EXAMPLE):
        build = self.folder / f"build-{example.name}"
        output_of("cmake", "-G", "Ninja", "-S", example, "-B", build, *settings)
        output_of("cmake", "--build", build)
        return build

    def pkg_config(self, prefix, *options):
        return output_of("pkg-config", "--cflags", "--libs", *options, "cairn",
                         env={**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}).split()

    def compile(self, name, *flags):
        """Builds the program, or library, without CMake; the headers of Cairn, and of MPI as cairn.pc asks for it, give
        no warning."""
        output_of(os.environ["CAIRN_MPICXX"], "-Wall", "-Wextra", "-Werror", EXAMPLE / "main.cpp", "-o", self.folder / name,
                  *flags)
        return self.folder / name

    def check_runs(self, program, **extra):
        """Saves on three ranks, and resumes on other numbers of them."""
        place = self.folder / f"runs-{program.name}"
        place.mkdir()
        for runs, ranks in enumerate((3, 1, 4)):
            out = output_of(*shlex.split(os.environ["CAIRN_MPIEXEC"]), ranks, program, cwd=place,
                            env={**os.environ, **extra})
            self.assertEqual(out, f"loaded {100 * runs}, saved {100 * runs + 100}, equal: yes\n")
        self.assertTrue((place / "run1/checkpoint-100/model.safetensors").exists())
        os.truncate(place / "run1/checkpoint-300/cairn.json", 100)  # it resumes from the previous one
        self.assertEqual(output_of(*shlex.split(os.environ["CAIRN_MPIEXEC"]), 2, program, cwd=place, env={**os.environ, **extra}),
                         "loaded 200, saved 300, equal: yes\n")

    def check_trains(self, program):
        """Trains on two ranks, and continues on three."""
        for ranks, steps, start in (2, 4, "starting at step 0"), (3, 8, "resuming at step 4"):
            out = output_of(*shlex.split(os.environ["CAIRN_MPIEXEC"]), ranks, program, "--steps", steps, cwd=self.folder)
            self.assertEqual(out.splitlines()[0], f"{start} on {ranks} ranks")
            self.assertRegex(out, rf"(?m)^complete at step {steps}, digest")
