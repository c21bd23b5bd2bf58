"""--quiet: no progress, notes and summaries; errors, warnings and findings all the same."""

import json
import pathlib
import shutil
import tempfile

import small_files
from program import CairnTest, cairn, main

TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 500,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "max_position_embeddings": 128}


class Quiet(CairnTest):
    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="cli-quiet-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        (cls.shared / "tiny.json").write_text(json.dumps(TINY))
        cls.model = f"@{cls.shared}/tiny.json"
        saves = [cairn("demo", "save", "--dir", cls.shared / "root", "--model", cls.model, "--step", step, "--quiet", ranks=ranks)
                 for step, ranks in ((100, None), (200, 2))]
        cls.said = [save.out + "".join(save.errors + save.warnings) for save in saves]

    def setUp(self):
        super().setUp()
        self.root = shutil.copytree(self.shared / "root", self.folder / "root")

    def silent(self, *words):
        result = self.good(*words, "--quiet", CAIRN_PROGRESS_S="0.000001")
        self.assertEqual((result.out, result.err), ("", ""), words)

    def test_good_work_is_silent(self):
        self.assertEqual(self.said, ["", ""])
        step, out = self.root / "checkpoint-100", self.folder / "out"
        self.silent("verify", self.root)  # with a note on the newest
        self.silent("verify", self.root, "--all")
        self.silent("convert", step, out)
        self.silent("diff", step, out)
        self.silent("diff", step, out, "--rtol", "0.1")
        self.silent("demo", "load", "--dir", self.root)
        self.silent("pin", self.root, 200)
        self.silent("unpin", self.root, 200)
        self.silent("prune", self.root, "--keep-last", 1)
        self.assertFalse(step.exists())

    def test_what_is_wrong_is_told(self):
        path = next((self.root / "checkpoint-200").glob("model*.safetensors"))
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        loud = cairn("verify", self.root / "checkpoint-200")
        quiet = cairn("verify", self.root / "checkpoint-200", "--quiet")
        self.assertEqual((quiet.code, quiet.out), (1, loud.out))
        all_quiet = cairn("verify", self.root, "--all", "--quiet")
        self.assertEqual(all_quiet.code, 1)
        self.assertRegex(all_quiet.out, r"\Astep +200 .*bad: .*\nbad: 1 of 2 .*\n\Z")
        plain = self.folder / "plain"
        self.good("convert", self.root / "checkpoint-100", plain, "--dtype", "F32")
        loud = cairn("diff", self.root / "checkpoint-100", plain)
        quiet = cairn("diff", self.root / "checkpoint-100", plain, "--quiet")
        self.assertEqual((quiet.code, quiet.out), (1, loud.out))
        self.bad(1, "verify", self.folder / "nothing", "--quiet", says=["does not exist"])
        self.bad(1, "prune", self.folder / "nothing", "--keep-last", 1, "--quiet", says=["does not exist"])

    def test_what_is_lost_is_told(self):
        source = self.folder / "source"
        small_files.two_shards(source)
        (source / "optimizer.pt").write_bytes(b"PK\3\4" + bytes(50))
        loud = self.good("convert", source, self.folder / "loud")
        notes = [line for line in loud.out.splitlines() if line.startswith("note: ")]
        self.assertGreater(len(notes), 0)
        quiet = self.good("convert", source, self.folder / "quiet", "--quiet")
        self.assertEqual([line.replace("quiet", "loud") for line in quiet.out.splitlines()], notes)

    def test_figures_are_told_and_progress_is_not(self):
        plan = ("plan", "--model", self.model, "--layout", "fsdp=4")
        self.assertIn("per rank", self.good(*plan, "--quiet").out)
        bench = ("bench", "--dir", self.folder, "--model", self.model, "--repeats", 1, "--warm-up", 0, "--no-load")
        self.assertIn("cairn bench: workload", self.good(*bench).err)
        quiet = self.good(*bench, "--quiet")
        self.assertEqual(quiet.err, "")
        self.assertIn("share of raw", quiet.out)
        checks = cairn("doctor", self.folder, "--json").json()["checks"]
        told = cairn("doctor", self.folder, "--quiet").out
        for check in checks:
            self.assertEqual(check["name"] in told, any(each["verdict"] in ("warning", "danger") for each in checks
                                                        if each["name"] == check["name"]), told)

    def test_with_json_it_silences_progress(self):
        for words in (["verify", self.root], ["diff", self.root, self.root]):
            loud = self.good(*words, "--json", CAIRN_PROGRESS_S="0.000001")
            quiet = self.good(*words, "--json", "--quiet", CAIRN_PROGRESS_S="0.000001")
            self.assertEqual(quiet.err, "")
            self.assertEqual(list(quiet.json()), list(loud.json()))
        self.bad(2, "prune", self.root, "--keep-last", 1, "--json", "--quiet", says=["--quiet has no effect"])
        self.bad(2, "prune", self.root, "--keep-last", 1, "--dry-run", "--quiet", says=["--quiet has no effect"])
        self.bad(2, "doctor", "--json", "--quiet", says=["--quiet has no effect"])


if __name__ == "__main__":
    main()
