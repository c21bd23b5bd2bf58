"""`cairn doctor`: dangers end with code 1 and say what to do."""

from program import CairnTest, cairn, exit_codes, main


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
