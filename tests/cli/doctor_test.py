"""`cairn doctor`: dangers end with code 1 and a remedy."""

import pathlib
import re
import resource

from program import CairnTest, Paused, cairn, exit_codes, main
from small_files import two_shards

HARD_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
RAISED = min(1 << 16, 1 << 62 if HARD_LIMIT == resource.RLIM_INFINITY else HARD_LIMIT)


def with_open_files(soft):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, HARD_LIMIT))


class Doctor(CairnTest):
    def checks(self, code, *arguments, **options):
        result = cairn("doctor", *arguments, "--json", **options)
        self.assertEqual(result.code, code, result.err + result.out)
        document = result.json()
        self.assertEqual(document["dangerous"], code == 1)
        return {check["name"]: check for check in document["checks"]}

    def is_open_mpi_4(self):
        return "Open MPI v4" in self.good("--version").out

    def test_the_mpi_io_that_cairn_uses(self):
        checks = self.checks(0, OMPI_MCA_io="romio321") if self.is_open_mpi_4() else self.checks(0)
        self.assertEqual(checks["mpi-io"]["verdict"], "good")
        self.assertIn("romio", checks["mpi-io"]["finding"])

    def test_ompio_of_open_mpi_4_is_a_danger_on_every_rank(self):
        if not self.is_open_mpi_4():
            self.skipTest("another MPI library")
        check = self.checks(1, OMPI_MCA_io="ompio")["mpi-io"]
        self.assertEqual(check["verdict"], "danger")
        self.assertIn("export OMPI_MCA_io=romio321", check["remedy"])
        text = cairn("doctor", OMPI_MCA_io="ompio").out
        self.assertIn("dangerous: 1 of", text)
        self.assertIn("-> export OMPI_MCA_io=romio321", text)

    def test_the_wrong_launcher(self):
        check = self.checks(1, PMI_SIZE="4")["launcher"]
        self.assertEqual(check["verdict"], "danger")
        self.assertIn("PMI_SIZE=4", check["finding"])

    def test_limits_are_those_of_the_programs_that_the_user_starts(self):
        few = self.checks(0, who={"preexec_fn": with_open_files(200)})["limits"]
        self.assertEqual(few["verdict"], "note")
        self.assertIn("200 open files (ulimit -n); ranks that open a thousand files", few["finding"])
        self.assertIn(f"ulimit -n {RAISED} ", few["remedy"])
        if RAISED >= 4096:
            many = self.checks(0, who={"preexec_fn": with_open_files(4096)})["limits"]
            self.assertEqual((many["verdict"], many["remedy"]), ("good", ""))
            self.assertIn("4096 open files", many["finding"])
        most = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, resource.RLIM_INFINITY))}
        small = self.checks(0, who=most)["limits"]
        self.assertEqual(small["verdict"], "warning")
        self.assertRegex(small["finding"], r"files may have 1[.0]* GiB \(ulimit -f\)")
        self.assertIn("ulimit -f unlimited", small["remedy"])

    def test_every_command_raises_its_own_limit_of_open_files(self):
        source = self.folder / "source"
        two_shards(source)
        paused = Paused(self, "commit.manifest", "convert", source, self.folder / "out", before=with_open_files(200))
        limits = pathlib.Path(f"/proc/{paused.process.pid}/limits").read_text()
        found = re.search(r"Max open files +(\d+)", limits)
        paused.go()
        self.assertEqual(paused.result().code, 0)
        self.assertEqual(int(found[1]), RAISED)

    def test_ranks_end_alike(self):
        self.assertEqual(exit_codes("doctor", self.folder, ranks=2), [0, 0])
        self.assertIn("2 ranks", self.good("doctor", ranks=2).out)

    def test_a_path(self):
        checks = self.checks(0, self.folder / "not" / "yet")
        self.assertIn(str(self.folder), checks["file system"]["finding"])
        self.assertRegex(checks["free space"]["finding"], r"[0-9] .?i?B free")
        self.assertEqual(checks["permission"]["verdict"], "good")
        self.assertEqual(checks["path"]["verdict"], "warning")
        self.assertIn("yet' does not exist", checks["path"]["finding"])
        self.assertNotIn("path", self.checks(0, self.folder))
        self.assertFalse((self.folder / "not").exists())
        self.assertNotIn("file system", self.checks(0))

    def test_a_path_that_is_no_directory(self):
        file = self.folder / "file"
        file.write_text("text")
        for path in (file, file / "below", "/dev/null"):
            self.bad(2, "doctor", path, says=["is not a directory"])
        self.bad(2, "doctor", file, ranks=2, says=[file, "is not a directory"])


if __name__ == "__main__":
    main()
