"""A save that is killed at a random moment, again and again: the newest complete checkpoint is always intact,
either the previous one or the killed save as a whole; and the next save works.

    kills_test.py --kills 5
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from root import CAIRN, LIMIT_S, newest, remove_before

TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 500,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "max_position_embeddings": 128}


class Kills(unittest.TestCase):
    kills = 5

    def setUp(self):
        in_memory = pathlib.Path("/dev/shm")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="kills-", dir=in_memory if in_memory.is_dir() else None))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.root = self.folder / "root"
        self.model = self.folder / "tiny.json"
        self.model.write_text(json.dumps(TINY))
        self.output = self.folder / "output"
        self.addCleanup(self.end_daemons)

    def save(self, step):
        """Starts a save of one process."""
        command = [CAIRN, "demo", "save", "--dir", self.root, "--model", f"@{self.model}", "--step", str(step)]
        with self.output.open("w") as output:
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def end_of(self, process):
        """(status, output). The output is not read from a pipe: Open MPI starts a daemon for a process without a
        launcher, which now and then outlives a process that is killed while it starts, and would keep the pipe open."""
        return process.wait(LIMIT_S), self.output.read_text()

    def end_daemons(self):
        """Ends the remaining processes of killed saves; returns their number."""
        ended = 0
        for writes_to in pathlib.Path("/proc").glob("[0-9]*/fd/1"):
            try:
                if os.readlink(writes_to) == str(self.output):
                    os.kill(int(writes_to.parts[2]), signal.SIGKILL)
                    ended += 1
            except OSError:  # another user's, or ended
                pass
        return ended

    def good_save(self, step):
        status, output = self.end_of(self.save(step))
        self.assertEqual(status, 0, output)

    def test_kills(self):
        seed = int(os.environ.get("CAIRN_TEST_SEED") or time.time_ns() % 2**32)
        print(f"CAIRN_TEST_SEED={seed}", flush=True)
        moments = random.Random(seed)
        start = time.monotonic()
        self.good_save(1)
        takes_s = time.monotonic() - start
        step, cut_off = 1, 0
        for _ in range(self.kills):
            before, step = step, step + 1
            process = self.save(step)
            time.sleep(moments.uniform(0, takes_s))
            process.kill()
            status, output = self.end_of(process)
            cut_off += status != 0
            found = newest(self, self.root)
            self.assertIn(found, (before, step) if status < 0 else (step,), output)
            if found != step:
                step += 1
                self.good_save(step)
                self.assertEqual(newest(self, self.root), step)
            remove_before(self.root, step)
        if self.kills >= 5:
            self.assertGreater(cut_off, 0, "every save was over before it was killed")
        print(f"[cairn] did {cut_off} kills of a save of one process in its middle", flush=True)
        time.sleep(1)  # by then, processes that notice have ended
        print(f"[cairn] did {self.end_daemons()} ends of a daemon of Open MPI that a kill had left", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=Kills.kills)
    Kills.kills = parser.parse_args().kills
    unittest.main(argv=["test"], verbosity=2)
