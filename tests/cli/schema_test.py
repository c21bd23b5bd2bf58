"""Every key of the documents of --json stands in src/cli/JSON.md, and every key of that page in a document."""

import json
import os
import pathlib
import re
import shutil
import tempfile

import small_files
from program import CairnTest, cairn, main

DATA = pathlib.Path(os.environ["CAIRN_TEST_DATA"])
PAGE = pathlib.Path(__file__).resolve().parents[2] / "src/cli/JSON.md"
TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 500,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "max_position_embeddings": 128}
SUMMARY = ("median", "min", "max", "values[]")


def rows_below(text):
    """The keys of the tables in a part of the page."""
    keys = []
    for cell in re.findall(r"(?m)^\| (`.*?) \| ", text):
        keys += re.findall(r"`([^`]+)`", cell)
    return keys


def expanded(key, operation):
    if key.endswith(".+"):
        return [each for name in operation for each in expanded(key[:-1] + name, [])]
    return [key[:-1] + part for part in SUMMARY] if key.endswith("^") else [key]


def keys_of_page():
    """{command: keys}, with those of every document as the command "" has them."""
    parts = re.split(r"(?m)^## ", PAGE.read_text())
    sections = {"": rows_below(parts[0])}
    for part in parts[1:]:
        name, _, text = part.partition("\n")
        tables = text.split("| key of an operation |")
        operation = rows_below(tables[1]) if len(tables) == 2 else []
        sections[name] = [each for key in rows_below(tables[0]) for each in expanded(key, operation)]
    return sections


def paths_of(value, path=""):
    """The paths of all values that are neither objects nor lists, and of empty lists and objects."""
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from paths_of(below, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        if not value:
            yield path + "[]"
        for below in value:
            yield from paths_of(below, path + "[]")
    else:
        yield path


def pattern_of(key):
    return re.compile(r"[^.\[\]]+".join(re.escape(part) for part in key.split("*")) if "metadata" not in key and
                      "aliases" not in key else ".+".join(re.escape(part) for part in key.split("*")))


class Schema(CairnTest):
    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="cli-schema-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        (cls.shared / "tiny.json").write_text(json.dumps(TINY))
        cls.model = f"@{cls.shared}/tiny.json"
        cls.saves = [cairn("demo", "save", "--dir", cls.shared / "root", "--model", cls.model, "--step", step, "--json")
                     for step in (100, 200, 300)]
        cls.page = keys_of_page()

    def setUp(self):
        super().setUp()
        self.root = shutil.copytree(self.shared / "root", self.folder / "root")

    def damage(self, step, place=-1):
        path = next((self.root / f"checkpoint-{step}").glob("model*.safetensors"))
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)

    def check(self, command, *results, never=()):
        """`never`: keys whose values no test here can bring about."""
        documents = [result.json() for result in results]
        rows = self.page[command] + self.page[""]
        patterns = {key: pattern_of(key) for key in rows}
        seen = set()
        for document in documents:
            self.assertEqual(list(document)[:2], ["cairn_json", "command"])
            self.assertEqual((document["cairn_json"], document["command"]), (1, command.partition(" --")[0]))
            for path in paths_of(document):
                found = {key for key, pattern in patterns.items() if pattern.fullmatch(path)}
                # An empty list of objects, or null in place of one.
                above = path.removesuffix("[]") if any(key.startswith((path + ".", path.removesuffix("[]") + "[].")) or
                                                       key == path + ".*" for key in rows) else ""
                self.assertTrue(found or above, f"{command}: {path} is not in {PAGE.name}")
                seen |= found
        missing = set(self.page[command]) - seen
        self.assertEqual(missing, set(never), f"{command}: in {PAGE.name}, and in no document")

    def test_inspect(self):
        step = self.root / "checkpoint-100"
        manifest = json.loads((step / "cairn.json").read_text())
        small_files.write_manifest(step / "cairn.json", {**manifest, "metrics": {"loss": 2.5}})
        tied = self.folder / "tied"
        small_files.write_safetensors(tied / "model.safetensors", {"b.weight": small_files.counting("F32", [2, 2])},
                                      {"format": "pt", "a.weight": "b.weight"})
        (tied / "optimizer.pt").write_bytes(b"PK\3\4" + bytes(50))
        coded = self.folder / "coded"
        self.good("convert", DATA / "paddle/n-dp2-O0", coded, "--keep-names", "--quant", "q8", "--remove-master-weight")
        legacy = DATA / "paddle/n-legacy-dp2"
        two = self.folder / "two"
        small_files.two_shards(two)
        (self.folder / "part").mkdir()
        one = sorted(two.glob("model*.safetensors"))[0]
        one.rename(self.folder / "part" / one.name)
        self.check("inspect", *[self.good("inspect", path, "--json") for path in (step, tied, coded, legacy)],
                   self.good("inspect", two, "--part", self.folder / "part", "--json"))

    def test_verify(self):
        good = self.good("verify", self.root, "--json")
        self.damage(300)
        (self.root / "checkpoint-400.partial").mkdir()
        bad = cairn("verify", self.root / "checkpoint-300", "--json")
        self.check("verify", good, bad)
        self.check("verify --all", cairn("verify", self.root, "--all", "--json"))

    def test_convert(self):
        roots = [2.0 ** (-73 + i * 7 % 60) for i in range(256 * 128)]  # beyond the figures of q8
        source = self.folder / "source"
        for name, tensors in (("model", {"hard": roots}),
                              ("optimizer", {"hard.exp_avg": roots, "hard.exp_avg_sq": [root * root for root in roots]})):
            small_files.write_safetensors(source / f"{name}.safetensors",
                                          {key: small_files.values("F32", [256, 128], data) for key, data in tensors.items()})
        two = self.folder / "two"
        small_files.two_shards(two)
        (self.folder / "part").mkdir()
        one = sorted(two.glob("model*.safetensors"))[0]
        one.rename(self.folder / "part" / one.name)
        self.check("convert",
                   self.good("convert", source, self.folder / "coded", "--quant", "q8", "--report", "--json"),
                   self.good("convert", two, self.folder / "whole", "--part", self.folder / "part", "--json"))

    def test_diff(self):
        self.good("convert", self.root / "checkpoint-100", self.folder / "a", "--dtype", "F32", "--json")
        two = self.folder / "two"
        small_files.two_shards(two)
        (self.folder / "part").mkdir()
        one = sorted(two.glob("model*.safetensors"))[0]
        one.rename(self.folder / "part" / one.name)
        parts = ("--part-a", self.folder / "part", "--part-b", self.folder / "part")
        self.check("diff", cairn("diff", self.root / "checkpoint-100", self.folder / "a", "--json"),
                   cairn("diff", self.root / "checkpoint-100", self.root / "checkpoint-200", "--json"),
                   self.good("diff", two, two, *parts, "--json"))

    def test_report(self):
        log = [{"version": 1, "time": f"2026-11-25T00:{minute}:00.000Z", "what": "save", "outcome": "good", "run_id": "a",
                "step": minute, "seconds": 41.2, "stall_seconds": 1.2, "wait_seconds": 0.0, "background_seconds": 40.0,
                "bytes": 1 << 30, "files": 4, "ranks": 8, "nodes": 1, "work_seconds": 540.0} for minute in range(10, 60, 10)]
        log.append({"version": 1, "time": "2026-11-25T01:00:00.000Z", "what": "load", "outcome": "good", "run_id": "a",
                    "step": 50, "seconds": 28.0, "bytes": 1 << 30, "ranks": 8, "nodes": 1})
        whole, empty = self.folder / "whole", self.folder / "empty"
        whole.mkdir()
        empty.mkdir()
        (whole / "cairn.log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
        self.check("report", self.good("report", whole, "--json"), self.good("report", empty, "--json"))

    def test_ls(self):
        step = self.root / "checkpoint-200"
        manifest = json.loads((step / "cairn.json").read_text())
        small_files.write_manifest(step / "cairn.json", {**manifest, "metrics": {"loss": 2.5}})
        small_files.two_shards(self.root / "out.0123456789abcdef.partial")
        small_files.two_shards(self.root / "checkpoint-50")
        self.good("verify", self.root / "checkpoint-200")
        good = self.good("ls", self.root, "--json")
        self.damage(300)
        self.assertEqual(cairn("verify", self.root / "checkpoint-300").code, 1)
        whole = self.good("ls", self.root, "--json")
        (self.root / "checkpoint-300" / "cairn.json").write_text("{")
        self.check("ls", good, whole, self.good("ls", self.root, "--json"))

    def test_prune(self):
        rules = ("prune", self.root, "--keep-last", 1, "--json")
        self.check("prune", self.good(*rules, "--dry-run"),
                   cairn(*rules, CAIRN_FAULT="prune.aside:errno=EIO"))

    def test_doctor(self):
        self.check("doctor", cairn("doctor", self.folder, "--json"))

    def test_demo(self):
        self.check("demo save", *self.saves)
        plain = shutil.copytree(self.root / "checkpoint-100", self.folder / "plain")
        for name in ("cairn.json", "cairn.blocks"):
            (plain / name).unlink()
        path = next(plain.glob("model*.safetensors"))
        content = bytearray(path.read_bytes())
        content[-8] ^= 1
        path.write_bytes(content)
        self.good("convert", plain, self.folder / "wrong" / "checkpoint-7")
        self.damage(300)
        self.check("demo load", self.good("demo", "load", "--dir", self.root, "--json"),
                   cairn("demo", "load", "--dir", self.folder / "wrong", "--json"))

    def test_plan(self):
        plan = ("plan", "--model", self.model, "--layout", "fsdp=4", "--nodes", 2, "--json")
        self.check("plan", self.good(*plan, "--stripe", "1MiB", "--bandwidth", "1GiB/s"),
                   self.good(*plan, "--load", "fsdp=2"),
                   self.good("plan", "--model", self.model, "--layout", "fsdp=2", "--json"))

    def test_advise(self):
        self.check("advise", self.good("advise", "--stall", 1, "--mtbf", "3h", "--json"),
                   self.good("advise", "--stall", 1, "--step", 15, "--failures", 12, "--hours", 400, "--run", "30d", "--json"))

    def test_bench(self):
        bench = ("bench", "--dir", self.folder, "--model", self.model, "--repeats", 1, "--warm-up", 0, "--json")
        self.check("bench", self.good(*bench, ranks=2))
        self.check("bench --async", self.good(*bench, "--async"))


if __name__ == "__main__":
    main()
