"""The log of a root, cairn.log.jsonl: written by `cairn demo` and `cairn verify`, shown by `cairn ls`, also again and again."""

import json
import re
import shutil
import signal
import subprocess
import time

from program import CAIRN, LIMIT_S, CairnTest, cairn, environment, main, snapshot

LOG = "cairn.log.jsonl"
TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 500,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "max_position_embeddings": 128}


class Log(CairnTest):
    def setUp(self):
        super().setUp()
        self.root = self.folder / "root"
        (self.folder / "tiny.json").write_text(json.dumps(TINY))
        self.saving = ("demo", "save", "--dir", self.root, "--model", f"@{self.folder}/tiny.json", "--step")

    def save(self, step, **options):
        return self.good(*self.saving, step, **options)

    def lines(self):
        return [json.loads(line) for line in (self.root / LOG).read_text().splitlines()]

    def rows(self, *arguments):
        document = self.good("ls", self.root, "--json", *arguments).json()
        return {row["step"]: row for row in document["checkpoints"]}, document["log"]

    def test_every_call_has_a_line_and_ls_shows_them(self):
        self.save(100, ranks=2)
        self.good("demo", "load", "--dir", self.root, ranks=2)
        self.good("verify", self.root / "checkpoint-100")
        self.save(200)
        self.good("verify", f"{self.root}/checkpoint-200/", ranks=2)
        self.assertEqual([(line["what"], line["step"], line["outcome"], line["ranks"]) for line in self.lines()],
                         [("save", 100, "good", 2), ("load", 100, "good", 2), ("verify", 100, "good", 1), ("save", 200, "good", 1),
                          ("verify", 200, "good", 2)])
        for line in self.lines():
            self.assertEqual((line["version"], line["nodes"]), (1, 1))
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertTrue(line["seconds"] > 0 and line["bytes"] > 0 and line["phases"], line)
        self.bad(2, *self.saving, 200, says=["checkpoint-200"])
        refused = self.lines()[-1]
        self.assertEqual((refused["outcome"], refused["error"]["kind"], refused["step"]), ("refused", "usage", 200))

        rows, log = self.rows()
        self.assertEqual(list(rows), [100, 200])
        for row in rows.values():
            self.assertTrue(row["saved"] and row["verified"] and row["verified_good"] and row["save_seconds_max"] > 0, row)
            self.assertIsNone(row["stall_seconds_max"])
        self.assertEqual((log["saves"], log["loads"], log["verifications"]),
                         ({"all": 3, "good": 2}, {"all": 1, "good": 1}, {"all": 2, "good": 2}))
        self.assertEqual((log["last_failure"]["step"], log["lines_not_read"]), (200, 0))
        text = self.good("ls", self.root, ranks=2).out
        self.assertRegex(text, r"step +state +bytes +size +files +age +stall +GiB/s +verified +marks +directory")
        self.assertRegex(text, r"100 +complete .* \d+ (s|min) +- +[0-9.]+ +\d+ (s|min) ago +- +checkpoint-100")
        self.assertRegex(text, r"200 +complete .* resume +checkpoint-200")
        self.assertIn("log: 3 saves, 1 not good; 1 load; 2 verifications", text)
        self.assertRegex(text, "the last that was not good: a save of step 200, refused .* ago: .*checkpoint-200")

    def test_ls_marks_the_step_to_resume_from_and_pinned_ones(self):
        self.save(100)
        self.save(200)
        for step in (100, 200):
            self.good("pin", self.root, step)
        text = self.good("ls", self.root).out
        self.assertRegex(text, r"100 +complete .* pinned +checkpoint-100")
        self.assertRegex(text, r"200 +complete .* resume, pinned +checkpoint-200")
        self.good("unpin", self.root, 100)
        rows, _ = self.rows()
        self.assertEqual([(row["pinned"], row["metrics"]) for row in rows.values()], [(False, {}), (True, {})])

    def test_a_damaged_checkpoint_was_verified_and_is_bad(self):
        self.save(100)
        path = sorted((self.root / "checkpoint-100").glob("model*.safetensors"))[0]
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        self.assertEqual(cairn("verify", self.root, "--all").code, 1)
        line = self.lines()[-1]
        self.assertEqual((line["what"], line["outcome"], line["error"]["kind"]), ("verify", "failed", "integrity"))
        self.assertGreater(line["faults"], 0)
        self.assertIn(path.name, line["error"]["text"])
        self.assertIs(self.rows()[0][100]["verified_good"], False)
        self.assertRegex(self.good("ls", self.root).out, r"bad, \d+ s ago")
        self.assertEqual(cairn("verify", self.root / "checkpoint-100").code, 1)

    def test_torn_and_foreign_lines_do_no_harm(self):
        self.save(100)
        with (self.root / LOG).open("a") as log:
            log.write('{"version": 9}\nnonsense\n{"version":1,"ti')
        self.save(200)
        rows, log = self.rows()
        self.assertEqual((log["saves"]["all"], log["lines_not_read"]), (2, 3))
        self.assertTrue(rows[200]["saved"])
        (self.root / LOG).write_bytes(bytes(range(256)) * 100)
        self.good("ls", self.root)
        (self.root / LOG).unlink()
        rows, log = self.rows()
        self.assertEqual((rows[100]["saved"], log["saves"]["all"]), (None, 0))
        self.assertNotIn("GiB/s", self.good("ls", self.root).out)

    def test_a_log_that_cannot_be_written_fails_nothing(self):
        self.save(100)
        before = (self.root / LOG).read_bytes()
        for rule, warnings in (("open:path=cairn.log:errno=EACCES", 1), ("write:path=cairn.log:errno=ENOSPC", 1)):
            saved = self.save(200 + warnings + len(rule), ranks=2, CAIRN_FAULT=rule)
            self.assertEqual(len([line for line in saved.warnings if "the log of" in line]), warnings, saved.err)
        for rule in ("open:path=cairn.log:errno=30", "open:path=cairn.log:errno=EACCES"):
            for command in (("demo", "load", "--dir", self.root), ("verify", self.root / "checkpoint-100")):
                self.assertEqual(self.good(*command, CAIRN_FAULT=rule).warnings, [])
        self.assertEqual((self.root / LOG).read_bytes(), before)

    def test_what_no_saver_made_gets_no_log(self):
        self.save(100)
        shutil.copytree(self.root / "checkpoint-100", self.folder / "copy" / "checkpoint-100")
        before = snapshot(self.folder / "copy")
        self.good("verify", self.folder / "copy" / "checkpoint-100")
        self.good("verify", self.folder / "copy", "--all")
        self.good("demo", "load", "--dir", self.folder / "copy")
        self.assertEqual(snapshot(self.folder / "copy"), before)

    def test_a_saver_killed_while_it_makes_the_log_smaller_loses_nothing(self):
        self.save(1)
        line = self.lines()[0]
        lines = [json.dumps({**line, "step": step, "run_id": "r" * 300}) for step in range(2, 2500)]
        with (self.root / LOG).open("a") as log:
            log.write("\n".join(lines) + "\n")
        for point, step in (("log.bound", 3000), ("log.rename", 3001)):
            killed = cairn(*self.saving, step, CAIRN_FAULT=f"{point}:kill")
            self.assertEqual(killed.code, -signal.SIGKILL)
            self.assertEqual(self.rows()[1]["saves"]["all"], step - 500)
        self.save(3002)
        self.assertLess((self.root / LOG).stat().st_size, 1 << 19)
        self.assertEqual([path.name for path in (self.root / ".cairn").glob("*.tmp")], [])
        rows, log = self.rows()
        self.assertEqual(log["saves"], {"all": 2502, "good": 2502})
        self.assertTrue(all(row["saved"] for row in rows.values()), "the lines of what is there stay")

    def watch(self, *arguments, ends_by=signal.SIGINT):
        """`cairn ls --watch` until it has listed twice; returns its exit code and output."""
        process = subprocess.Popen([str(CAIRN), "ls", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=environment({}), stdin=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        out = ""
        until = time.monotonic() + LIMIT_S
        while len(re.findall("checkpoints? under|last_failure", out)) < 2:
            self.assertLess(time.monotonic(), until, out)
            out += process.stdout.readline()
        process.send_signal(ends_by)
        rest, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(err, "")
        return process.returncode, out + rest

    def test_watch_lists_until_it_is_ended(self):
        self.save(100)
        for arguments in ((self.root, "--watch", "0.05"), ("--watch=0.05", self.root), ("--watch", self.root),
                          (self.root, "--watch", "0.05", "--json")):
            with self.subTest(arguments=arguments):
                code, out = self.watch(*arguments)
                self.assertEqual(code, 0)
                if "--json" not in arguments:
                    self.assertRegex(out, r"(?m)^20..-.*Z, every (0.05|2) s$")
                self.assertNotIn("\x1b", out, "no terminal")
        for wrong in ("0", "-1", "x", "1e9"):
            self.bad(2, "ls", self.root, "--watch", wrong, says=["--watch"])
        shutil.rmtree(self.root)
        self.bad(1, "ls", self.root, "--watch", says=["does not exist"])


if __name__ == "__main__":
    main()
