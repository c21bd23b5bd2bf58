"""`cairn prune`, `pin` and `unpin`: what goes and why, endings in between, other savers and loads of the root."""

import json
import pathlib
import shutil
import tempfile

from program import CairnTest, Paused, cairn, main, snapshot

TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 500,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "max_position_embeddings": 128}


class Prune(CairnTest):
    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="cli-prune-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        (cls.shared / "tiny.json").write_text(json.dumps(TINY))
        for step in (500, 1000, 1500, 2000):
            saved = cls.save_at(cls.shared / "root", step)
            assert saved.code == 0, saved.err

    @classmethod
    def save_at(cls, root, step, *arguments):
        return cairn("demo", "save", "--dir", root, "--model", f"@{cls.shared}/tiny.json", "--step", step, *arguments)

    def setUp(self):
        super().setUp()
        self.root = shutil.copytree(self.shared / "root", self.folder / "root")

    def steps(self):
        return [row["step"] for row in self.good("ls", self.root, "--json").json()["checkpoints"]]

    def test_says_what_goes_and_why(self):
        rules = ("--keep-last", 1, "--keep-every", 1000)
        before = snapshot(self.root)
        text = self.good("prune", self.root, *rules, "--dry-run").out
        self.assertRegex(text, r"(?m)^ *500 +would go .* checkpoint-500 +no rule keeps it$")
        self.assertRegex(text, r"(?m)^ *2000 +stays .* checkpoint-2000 +newest, last 1, every 1000$")
        self.assertIn("2 of 4 checkpoints under", text)
        self.assertEqual(snapshot(self.root), before)
        document = self.good("prune", self.root, *rules, "--json").json()
        self.assertEqual([(row["step"], row["goes"]) for row in document["checkpoints"]],
                         [(500, True), (1000, False), (1500, True), (2000, False)])
        self.assertGreater(document["freed_size_bytes"], document["checkpoints"][0]["size_bytes"])
        self.assertEqual(self.steps(), [1000, 2000])
        self.assertEqual([path.name for path in (self.root / ".cairn").glob("removed.*")], [])
        self.good("verify", self.root, "--all")

    def test_pins(self):
        self.assertIn("step 500", self.good("pin", self.root, 500).out)
        self.good("prune", self.root, "--keep-last", 1)
        self.assertEqual(self.steps(), [500, 2000])
        self.good("unpin", self.root, 500)
        self.good("prune", self.root, "--keep-last", 1, ranks=2)
        self.assertEqual(self.steps(), [2000])
        self.bad(1, "pin", self.root, 500, says=["checkpoint-500", "only step 2000"])
        self.bad(1, "unpin", self.root, 500, says=["step 500", "not pinned"])

    def test_parts_of_a_state(self):
        for step, arguments in ((2100, ("--section", "model", "--base", 1000)), (2200, ("--section", "model")),
                                (2300, ("--no-save-optim", "--base", "elsewhere"))):
            saved = self.save_at(self.root, step, *arguments)
            self.assertEqual(saved.code, 0, saved.err)
        listing = self.good("ls", self.root)
        self.assertRegex(listing.out, r"(?m)^ *2100 +part .* checkpoint-2100 +only sections model; base: step 1000$")
        self.assertRegex(listing.out, r"(?m)^ *2300 +part .* only all without section optimizer; base: 'elsewhere'$")
        self.assertIn("7 checkpoints", listing.out)
        self.assertIn("4 complete, 3 of a part", listing.out)
        document = self.good("ls", self.root, "--json").json()
        self.assertEqual(document["newest_complete_step"], 2000)
        self.assertEqual([row["part"] for row in document["checkpoints"][3:5]],
                         [None, "sections model; base: step 1000"])
        self.assertEqual((self.root / "latest_checkpointed_iteration.txt").read_text(), "2000\n")
        inspected = self.good("inspect", self.root / "checkpoint-2100")
        self.assertIn("only a part of a state: sections model; base: step 1000", inspected.out)
        self.assertEqual(self.good("inspect", self.root, "--json").json()["manifest"]["step"], 2000)
        self.assertIn("checkpoint-2300 holds only all without section optimizer", self.good("inspect", self.root).out)
        self.good("verify", self.root, "--all")
        self.good("demo", "load", "--dir", self.root)
        self.good("convert", self.root / "checkpoint-2100", self.folder / "weights")
        self.assertIn("only a part of a state", self.good("inspect", self.folder / "weights").out)

        text = self.good("prune", self.root, "--keep-last", 1, "--dry-run").out
        for fate in (r"500 +would go .* no rule keeps it", r"1000 +stays .* the base of step 2100",
                     r"2000 +stays .* newest, last 1", r"2100 +would go .* no rule keeps it",
                     r"2200 +stays .* newest with sections model, last 1",
                     r"2300 +stays .* newest with all without section optimizer, last 1"):
            self.assertRegex(text, rf"(?m)^ *{fate}$")
        self.good("prune", self.root, "--keep-last", 1)
        self.assertEqual(self.steps(), [1000, 2000, 2200, 2300])
        shutil.rmtree(self.root / "checkpoint-1000")
        shutil.rmtree(self.root / "checkpoint-2000")
        self.bad(1, "inspect", self.root, says=["none holds a whole state", "steps 2200, 2300"])
        self.bad(1, "demo", "load", "--dir", self.root, says=["steps 2200, 2300 hold only a part of a state"])

    def test_refusals(self):
        self.bad(2, "prune", self.root, "--keep-last", 0, says=["--keep-last", "0"])
        self.bad(2, "prune", self.root, "--keep-best", "loss", says=["--keep-best", "loss:min:2"])
        self.bad(1, "prune", self.folder / "nowhere", "--keep-last", 1, says=["nowhere"])
        self.assertIn("no rule is given", self.good("prune", self.root).out)
        self.assertEqual(self.steps(), [500, 1000, 1500, 2000])

    def test_a_kill_loses_nothing(self):
        for point in ("prune.looked", "prune.aside", "prune.delete"):
            with self.subTest(point):
                self.root = shutil.copytree(self.shared / "root", self.folder / point)
                paused = Paused(self, point, "prune", self.root, "--keep-last", 2)
                paused.process.kill()
                paused.result()
                self.good("verify", self.root, "--all")  # also those that are moved aside
                self.assertLessEqual({1500, 2000}, set(self.steps()))
                self.good("prune", self.root, "--keep-last", 2)
                self.assertEqual(self.steps(), [1500, 2000])
                self.assertEqual([path.name for path in self.root.glob("*.replaced")], [])
                self.assertEqual([path.name for path in (self.root / ".cairn").glob("removed.*")], [])

    def test_leaves_what_a_load_has_open(self):
        load = Paused(self, "call.phase:path=read", "verify", self.root / "checkpoint-500")
        self.assertRegex(self.good("prune", self.root, "--keep-last", 1).out, r"(?m)^ *500 +stays .* being loaded by process ")
        self.assertEqual(self.steps(), [500, 2000])
        load.go()
        done = load.result()
        self.assertEqual(done.code, 0, done.out + done.err)
        self.good("prune", self.root, "--keep-last", 1)
        self.assertEqual(self.steps(), [2000])

    def test_one_saver_at_a_time(self):
        save = Paused(self, "commit.carry", "demo", "save", "--dir", self.root, "--model", f"@{self.shared}/tiny.json",
                      "--step", 2500)
        self.bad(1, "prune", self.root, "--keep-last", 1, says=["has another saver"])
        self.assertEqual(len(self.steps()), 5)  # one of them is partial
        save.go()
        self.assertEqual(save.result().code, 0)


if __name__ == "__main__":
    main()
