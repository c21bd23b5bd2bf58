"""`cairn` started by a rank of an MPI job inherits the rank's environment: it works as a process of its own, and does
not wait in MPI_Init for the other ranks. Where it cannot tell, it says what to do."""

import subprocess
import time

from program import CAIRN, LIMIT_S, CairnTest, environment, launcher, main
from small_files import two_shards

RANK = CAIRN.parent / "nested_rank"
# The first rank runs the command. The other ranks wait for its end, or end at once if the file exists already.
SCRIPT = '''[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 0 ] || { "$@"; echo "code=$?"; touch "$0"; exit; }
while [ ! -e "$0" ]; do sleep 0.1; done'''


class Nested(CairnTest):
    def test_a_command_of_one_rank(self):
        source = self.folder / "source"
        two_shards(source)
        inspect = [CAIRN, "inspect", source]
        # Open MPI marks the environment of a rank; Python's os.environ, say, lacks the mark.
        unmarked = ["env", "-u", "OMPI_MCA_ess", "-u", "PMIX_MCA_psec", *inspect]
        script = ["sh", "-c", SCRIPT, self.folder / "ended", *inspect]  # the other rank continues
        lonely = ["sh", "-c", SCRIPT, source, *inspect]  # the other rank is gone
        uncounted = ["sh", "-c", SCRIPT, source, "env", "-u", "OMPI_COMM_WORLD_LOCAL_SIZE", "-u", "MPI_LOCALNRANKS", *inspect]
        started = {
            "a rank's": self.start([RANK, *inspect]),
            "a rank's, without the mark": self.start([RANK, *unmarked]),
            "a script's": self.start(script),
            "a script's, on its own": self.start(lonely, CAIRN_ALONE="1"),
            "a script's without others": self.start(lonely),
            "a script's, and nobody says that there were others": self.start(uncounted, CAIRN_WATCHDOG_S="2"),
        }
        ended = {who: (process, *process.communicate(timeout=LIMIT_S)) for who, process in started.items()}
        self.assertEqual(list(ended), list(started))
        for who, (process, out, err) in ended.items():
            with self.subTest(who=who):
                if "nobody says" in who:
                    self.assertIn("MPI_Init has waited 2 s for the other processes of this MPI job", err)
                    self.assertIn("set CAIRN_ALONE=1", err)
                    continue
                self.assertEqual(process.returncode, 0, out + err)
                self.assertEqual(out.count("Hugging Face, no cairn.json"), 1, out + err)
                is_guessed = who in ("a script's", "a script's without others")
                self.assertEqual("works as a process of its own; CAIRN_ALONE=1" in err, is_guessed, err)

    def test_a_script_of_every_rank_is_one_job(self):
        source = self.folder / "source"
        two_shards(source)
        process = self.start(["sh", "-c", '"$@" >"$0.$$"; echo "code=$?"', self.folder / "out", CAIRN, "inspect", source])
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(out.split(), ["code=0", "code=0"], err)
        printed = [path.read_text() for path in self.folder.glob("out.*")]
        self.assertEqual(len(printed), 2)
        self.assertEqual(sum("Hugging Face, no cairn.json" in text for text in printed), 1, "rank 0 speaks")

    def test_a_rank_that_starts_late(self):
        """The script's command looks for the node's other rank before the launcher has started it."""
        source = self.folder / "source"
        two_shards(source)

        def rank(number, *command):
            job = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "late",
                   "OMPI_MCA_ess": "pmi", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2", "PMI_FD": "0"}
            own = {name: str(number) for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")}
            return self.start_process(command, {**job, **own})

        first = rank(0, "sh", "-c", '"$@"; echo "code=$?"', "sh", CAIRN, "inspect", source)
        time.sleep(0.5)
        rank(1, "sleep", LIMIT_S)
        out, err = first.communicate(timeout=LIMIT_S)
        self.assertIn("code=0", out, err)
        self.assertEqual(out.count("Hugging Face, no cairn.json"), 1, out + err)
        self.assertNotIn("MPI sees one rank", err)  # would be there had it taken itself for one of two

    def start(self, command, **extra):
        # A command that waits for ever ends before this test does.
        return self.start_process([*launcher(2), *command], {"CAIRN_WATCHDOG_S": "120", **extra})

    def start_process(self, command, extra):
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=environment(extra), stdin=subprocess.DEVNULL)
        self.addCleanup(process.terminate)
        return process


if __name__ == "__main__":
    main()
