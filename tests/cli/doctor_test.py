"""`cairn doctor`: dangers end with code 1 and a remedy."""

import json
import os
import pathlib
import re
import resource
import subprocess

from program import CAIRN, CairnTest, Paused, cairn, exit_codes, main
from small_files import two_shards

HARD_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 500,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "max_position_embeddings": 128}
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

    def test_a_root_tells_of_its_next_save(self):
        root = self.folder / "root"
        self.assertNotIn("next save", self.checks(0, self.folder))
        for step in (1, 2):
            self.good(*self.save(root), "--step", step)
        check = self.checks(0, root)["next save"]
        self.assertEqual(check["verdict"], "good")
        self.assertRegex(check["finding"], r"iB, as step 2 has: about [0-9.]+ s at [0-9.]+ .iB/s, the median of the last 2 saves")
        self.assertRegex(self.checks(0, root).get("free inodes", {"finding": "1 free"})["finding"], r"^[0-9,]+ free")

    def save(self, root):
        model = self.folder / "tiny.json"
        model.write_text(json.dumps(TINY))
        return "demo", "save", "--dir", root, "--model", f"@{model}", "--layers", "1"

    def test_a_root_without_permission(self):
        if os.geteuid() != 0:
            self.skipTest("not root, who alone can start processes of two users")
        root = self.folder / "root"
        root.mkdir(mode=0o755)
        self.folder.chmod(0o755)
        who = {"user": 65534, "group": 65534, "extra_groups": []}
        if subprocess.run(["test", "-x", root, "-a", "-x", CAIRN], check=False, **who).returncode != 0:
            self.skipTest("other users cannot reach the build or the folder of temporary files")
        stranger = {"who": who, "HOME": "/tmp"}
        check = self.checks(1, root, **stranger)["permission"]
        self.assertEqual(check["verdict"], "danger")
        self.assertIn("cannot be written by this user (uid 65534)", check["finding"])
        self.bad(1, *self.save(root), **stranger, says=[f"Permission denied: '{root}' cannot be written by this user (uid 65534); "
                                                        "choose another directory"])
        self.assertEqual(list(root.iterdir()), [])

    def test_a_path_that_is_no_directory(self):
        file = self.folder / "file"
        file.write_text("text")
        for path in (file, file / "below", "/dev/null"):
            self.bad(2, "doctor", path, says=["is not a directory"])
        self.bad(2, "doctor", file, ranks=2, says=[file, "is not a directory"])


if __name__ == "__main__":
    main()
