"""`cairn repair`: what it says and does, endings in between, other savers; `cairn verify --for`, which finds the damage."""

import json
import pathlib
import shutil
import tempfile
import time

from program import CairnTest, Paused, cairn, main, snapshot

TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 500,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "max_position_embeddings": 128}
LOG = "cairn.log.jsonl"


class RootOfThree(CairnTest):
    """A root with the steps 100, 200 and 300."""

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="cli-repair-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        (cls.shared / "tiny.json").write_text(json.dumps(TINY))
        for step in (100, 200, 300):
            saved = cls.save_at(cls.shared / "root", step)
            assert saved.code == 0, saved.err

    @classmethod
    def save_at(cls, root, step):
        return cairn("demo", "save", "--dir", root, "--model", f"@{cls.shared}/tiny.json", "--step", step,
                     "--max-file-size", "500kB")

    def setUp(self):
        super().setUp()
        self.root = shutil.copytree(self.shared / "root", self.folder / "root")

    def file_of(self, step):
        return max((self.root / f"checkpoint-{step}").glob("optimizer*.safetensors"), key=lambda path: path.stat().st_size)

    def flip(self, path):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)

    def lines(self, *kinds):
        lines = [json.loads(line) for line in (self.root / LOG).read_text().splitlines()]
        return [line for line in lines if line["what"] in kinds]


class Repair(RootOfThree):
    def test_says_what_it_would_do_and_does_it(self):
        for step in (100, 200, 300):  # equal files, so that each has good bytes for the others
            self.flip(self.file_of(step))
        index = next((self.root / "checkpoint-100").glob("*.index.json"))
        index.unlink()
        (self.root / "latest_checkpointed_iteration.txt").unlink()
        before = snapshot(self.root)
        result = cairn("repair", self.root, "--dry-run")
        self.assertEqual((result.code, snapshot(self.root)), (1, before), result.err)
        self.assertRegex(result.out, r"(?m)^damaged: '.*index.json' is missing: would be written anew from the headers")
        self.assertRegex(result.out, r"(?m)^fault: '.*/checkpoint-200/optimizer.*': block 0 \(bytes 0 to \d+, tensors? '.*'.*\) "
                                     r"is damaged: a good one is found nowhere else$")
        self.assertRegex(result.out, r"(?m)^bad: 3 faults stay in 3 checkpoints of .*; 2 repairs possible, nothing was changed; .* read$")
        text = self.good("repair", self.root, "--from", self.shared / "root").out
        self.assertRegex(text, r"(?m)^repaired: .*optimizer.*: written anew with blocks of '.*/checkpoint-200'$")
        self.assertRegex(text, r"(?m)^repaired: '.*latest_.*' is missing: made to name step 300$")
        self.assertRegex(text, r"(?m)^good: 3 checkpoints of .*; 5 repairs made; .* in \d+ blocks read$")
        self.assertEqual([(line.get("step"), line["outcome"]) for line in self.lines("repair")],
                         [(100, "good"), (200, "good"), (300, "good"), (None, "good")])
        self.good("verify", self.root, "--all")
        self.assertRegex(self.good("ls", self.root).out, r"(?m)^ *200 .* s ago ")
        for name, content in snapshot(self.shared / "root").items():
            if not name.startswith((".cairn", LOG)):
                self.assertEqual((self.root / name).read_bytes(), content, name)
        document = self.good("repair", self.root, "--json", ranks=2).json()
        self.assertEqual((document["good"], document["actions"], document["faults"], document["checkpoints"]), (True, [], [], 3))
        self.assertIn("there is nothing to repair", self.good("repair", self.root / "checkpoint-100").out)

    def test_damage_that_stays(self):
        for step in (100, 300):
            shutil.rmtree(self.root / f"checkpoint-{step}")
        self.flip(self.file_of(200))
        before = snapshot(self.root / "checkpoint-200")
        for ranks in None, 2:
            result = cairn("repair", self.root, "--json", ranks=ranks)
            self.assertEqual(result.code, 1, result.err)
            (fault,) = result.json()["faults"]
            self.assertEqual((fault["step"], pathlib.Path(fault["path"]).name), (200, self.file_of(200).name))
        self.assertEqual(snapshot(self.root / "checkpoint-200"), before)
        self.assertEqual([line["faults"] for line in self.lines("repair") if line.get("step") == 200], [1, 1])
        self.bad(2, "repair", self.root, "--from", self.root, says=["to be repaired"])
        self.bad(1, "repair", self.folder / "nowhere", says=["nowhere"])

    def test_a_kill_loses_nothing(self):
        for point in ("repair.check", "repair.rename", "repair.latest.rename"):
            with self.subTest(point):
                self.root = shutil.copytree(self.shared / "root", self.folder / point)
                good = snapshot(self.root / "checkpoint-200")
                file = self.file_of(200)
                self.flip(file)
                damaged = file.read_bytes()
                (self.root / "latest_checkpointed_iteration.txt").unlink()
                arguments = ("repair", self.root, "--from", self.shared / "root")
                paused = Paused(self, point, *arguments)
                paused.process.kill()
                paused.result()
                self.assertIn(file.read_bytes(), (damaged, good[file.name]))
                self.good("demo", "load", "--dir", self.root, "--model", f"@{self.shared}/tiny.json")
                self.good(*arguments)
                self.assertEqual(snapshot(self.root / "checkpoint-200"), good)
                self.good("verify", self.root, "--all")

    def test_one_saver_at_a_time(self):
        save = Paused(self, "commit.carry", "demo", "save", "--dir", self.root, "--model", f"@{self.shared}/tiny.json",
                      "--step", 400)
        self.bad(1, "repair", self.root, says=["has another saver"])
        self.assertEqual(len(list(self.root.glob("*.partial"))), 1)
        save.go()
        self.assertEqual(save.result().code, 0)
        self.good("repair", self.root)


class Scrub(RootOfThree):
    """verify --for"""

    def verified(self):
        return [line["step"] for line in self.lines("verify")]

    def test_takes_first_what_was_verified_longest_ago(self):
        self.good("verify", self.root / "checkpoint-100")
        time.sleep(0.01)
        self.assertRegex(self.good("verify", self.root, "--for", "10m").out,
                         r"(?m)^good: 3 of 3 checkpoints under .*; all of them were in time$")
        self.assertEqual(self.verified(), [100, 200, 300, 100])
        for step in (200, 300):
            text = self.good("verify", self.root, "--for", "0.000001s", ranks=2).out
            self.assertRegex(text, r"good: 1 of 3 checkpoints under .*; the next is step \d+, verified 20")
            self.assertEqual(self.verified()[-1], step)
        rows = self.good("ls", self.root, "--json").json()["checkpoints"]
        self.assertTrue(all(row["verified_good"] for row in rows), rows)

    def test_says_what_is_damaged(self):
        self.flip(self.file_of(200))
        result = cairn("verify", self.root, "--for", "1h")
        self.assertEqual(result.code, 1, result.err)
        self.assertRegex(result.out, r"(?m)^bad: 1 bad among 3 of 3 checkpoints under ")
        document = cairn("verify", self.root, "--for", "1h", "--json", ranks=2).json()
        self.assertEqual([(row["step"], row["good"]) for row in document["checkpoints"]],
                         [(100, True), (200, False), (300, True)])
        self.assertIsNone(document["next_step"])
        self.bad(1, "verify", self.root / "checkpoint-100", "--for", "1h", says=["--for takes the root"])

    def test_says_that_nothing_can_be_remembered(self):
        shutil.rmtree(self.root / ".cairn")
        self.assertRegex(" ".join(self.good("verify", self.root, "--for", "1h").warnings), "begins with the same checkpoints")


if __name__ == "__main__":
    main()
