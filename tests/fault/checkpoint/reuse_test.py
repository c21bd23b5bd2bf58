"""Files of frozen tensors that a save shares with the checkpoint before it: kills at every step of sharing, by hard links
anywhere, and by reflinks on an XFS image, where the space that is used tells how much was written."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from mounts import Xfs, enter_namespace

CAIRN = pathlib.Path(os.environ["CAIRN_BIN_DIR"]) / "cairn"
TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 640, "vocab_size": 2000,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "max_position_embeddings": 128}
MIB = 1 << 20
KILLED = -9
STEPS = ("reuse.find", "reuse.take", "reuse.taken", "chmod", "link", "link:after=1", "commit.rename")


def used(path):
    found = os.statvfs(path)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


class Sharing(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sharing-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "tiny.json").write_text(json.dumps(TINY))

    def cairn(self, *arguments, fault=""):
        environment = {**os.environ, "CAIRN_FAULT": fault}
        return subprocess.run([str(CAIRN), *map(str, arguments)], capture_output=True, text=True, check=False, env=environment,
                              timeout=300, stdin=subprocess.DEVNULL)

    def good(self, *arguments):
        done = self.cairn(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def save(self, root, step, how, fault=""):
        return self.cairn("demo", "save", "--dir", root, "--model", f"@{self.folder}/tiny.json", "--step", step, "--frozen",
                          "optimizer", "--frozen", "master*", "--reuse", how, "--max-file-size", "4MB", "--json", fault=fault)

    def saved(self, root, step, how):
        done = self.save(root, step, how)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_kills_lose_nothing(self):
        first = self.folder / "first"
        self.saved(first, 1, "hard-link")
        for step in STEPS:
            with self.subTest(step):
                root = self.folder / "root"
                shutil.rmtree(root, ignore_errors=True)
                shutil.copytree(first, root)
                self.assertEqual(self.save(root, 2, "hard-link", fault=step + ":kill").returncode, KILLED)
                document = self.saved(root, 3, "hard-link")
                self.assertGreater(document["reused_size_bytes"], 0.8 * document["size_bytes"])
                self.good("verify", root, "--all")
                self.assertEqual([path.name for path in root.glob("*.partial")], [])
                self.good("prune", root, "--keep-last", 1)
                self.good("verify", root / "checkpoint-3")

    def test_reflinks(self):
        mount = Xfs(self, self.folder / "xfs", self.folder / "image", 320 * MIB)
        root = mount.path / "root"
        before = used(mount.path)
        self.assertEqual(self.saved(root, 1, "reflink")["reused_size_bytes"], 0)
        os.sync()
        one = used(mount.path) - before
        document = self.saved(root, 2, "reflink")
        self.assertGreater(document["reused_size_bytes"], 0.8 * document["size_bytes"])
        os.sync()
        self.assertLess(used(mount.path) - before - one, 0.3 * one)
        self.assertEqual({path.stat().st_nlink for path in (root / "checkpoint-2").iterdir()}, {1})
        self.good("verify", root, "--all")
        for step in ("clone", "clone:after=1", "reuse.taken", "fsync:path=optimizer", "commit.rename"):
            with self.subTest(step):
                self.assertEqual(self.save(root, 3, "reflink", fault=step + ":kill").returncode, KILLED)
                self.good("verify", root, "--all")
        self.good("prune", root, "--keep-last", 1)
        self.good("demo", "load", "--dir", root)
        self.saved(root, 4, "reflink")
        # A file that is written anew leaves the others as they are.
        shared = next((root / "checkpoint-4").glob("optimizer-*"))
        shared.write_bytes(bytes(shared.stat().st_size))
        self.assertNotEqual(self.cairn("verify", root / "checkpoint-4").returncode, 0)
        self.good("verify", root / "checkpoint-2")


if __name__ == "__main__":
    enter_namespace()
    unittest.main(verbosity=2)
