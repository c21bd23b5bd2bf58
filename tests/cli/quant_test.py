"""Checkpoints with coded moments: `inspect` lists the codes, `convert` keeps or decodes them,
`diff` compares values."""

import json
import math
import os
import pathlib
import shutil
import struct

import small_files
from program import CairnTest, cairn, main, snapshot

PADDLE = pathlib.Path(os.environ["CAIRN_TEST_DATA"]) / "paddle"


def floats(tensor):
    dtype, _, data = tensor
    assert dtype == "F32"
    return struct.unpack(f"<{len(data) // 4}f", data)


def optimizer_of(folder):
    found = {}
    for path in sorted(folder.glob("optimizer*.safetensors")):
        found.update(small_files.read_safetensors(path)[0])
    return found


def decode_o2(stored, name):
    """PaddlePaddle's own formula in double precision: close to the F32 values, from other code."""
    rows, columns = stored[f"{name}/moment2_0"][1]
    codes = struct.unpack(f"{rows * columns}b", stored[f"{name}/moment2_0"][2])
    scale, low, high = (floats(stored[f"{name}/{key}"]) for key in
                        ("moment1_0@scales", "moment2_0@min_scales", "moment2_0@max_scales"))
    m, v = [], []
    for i, code in enumerate(codes):
        at = i // columns // 32 * columns + i % columns
        m.append((code >> 4) * scale[at] / 7)
        r = (code & 15) / 15 * (high[at] - low[at]) + low[at]
        v.append((1 / r - 1e-8) ** 2)
    return m, v


class Quant(CairnTest):
    def test_inspect_says_what_is_coded(self):
        source = PADDLE / "n-dp2-O1"
        text = self.good("inspect", source, "--sections").out
        self.assertIn("optimizer: 12 pairs of moments are codes of paddle-o1, 91.5 KiB for 338 KiB, 3.7x", text)
        document = self.good("inspect", source, "--json").json()
        sections = {row["name"]: row["codings"] for row in document["sections"]}
        self.assertEqual((sections["model"], sections["master_weights"]), ([], []))
        (coding,) = sections["optimizer"]
        self.assertEqual((coding["codec"], coding["pairs"]), ("paddle-o1", 12))
        rows = {row["name"]: row for row in document["tensors"] if row["section"] == "optimizer"}
        coded = {name: row for name, row in rows.items() if row["coding"]}
        self.assertEqual(len(coded), 60)
        self.assertEqual(sum(row["size_bytes"] for row in coded.values()), coding["size_bytes"])
        self.assertEqual(coding["decoded_size_bytes"], 8 * 43200)
        self.assertEqual(rows["lm_head.weight/moment2_0@max_scales"]["coding"],
                         {"codec": "paddle-o1", "first": "lm_head.weight/moment1_0", "second": "lm_head.weight/moment2_0",
                          "shape": [64, 96]})
        self.assertIsNone(rows["lm_head.weight/beta1_pow_acc_0"]["coding"])
        text = self.good("inspect", source, "--tensors").out
        self.assertRegex(text, r"lm_head\.weight/moment1_0@scales .*paddle-o1: lm_head\.weight/moment1_0, lm_head")
        self.assertNotIn("codes of", self.good("inspect", PADDLE / "n-dp2-O0").out)

    def test_convert_codes_as_paddle_does(self):
        for codec, folder in (("paddle-o1", "n-dp2-O1"), ("paddle-o2", "n-dp2-O2-rm")):
            coded = self.folder / codec
            out = self.good("convert", PADDLE / "n-dp2-O0", coded, "--keep-names", "--quant", codec, "--report", ranks=3).out
            self.assertEqual(optimizer_of(coded), optimizer_of(PADDLE / folder))
            self.assertIn("update RMS %", out)
            self.assertRegex(out, rf"lm_head\.weight/moment1_0 +{codec} +6,144")

    def test_paddlenlp_resumes_without_masters(self):
        out = self.folder / "out"
        self.good("convert", PADDLE / "n-dp2-O0", out, "--to", "paddlenlp", "--quant", "paddle-o1", "--remove-master-weight")
        index = json.loads((out / "optimizer.safetensors.index.json").read_text())
        self.assertEqual((index["master_weights"], index["ckpt_quant_stage"]), (False, "O1"))
        self.assertEqual([path for path in out.iterdir() if path.name.startswith("master_weights")], [])
        self.assertEqual(optimizer_of(out), optimizer_of(PADDLE / "n-dp2-O1"))

    def test_paddlenlp_gets_o2_without_masters_in_one_step(self):
        out = self.folder / "out"
        text = self.good("convert", PADDLE / "n-dp2-O0", out, "--to", "paddlenlp", "--quant", "paddle-o2",
                         "--remove-master-weight", ranks=2).out
        self.assertRegex(text, r"(?m)^note: PaddleNLP cannot load moments of O2, its own neither .*take codec paddle-o1 or none$")
        index = json.loads((out / "optimizer.safetensors.index.json").read_text())
        self.assertEqual((index["master_weights"], index["ckpt_quant_stage"]), (False, "O2"))
        self.assertEqual([path for path in out.iterdir() if path.name.startswith("master_weights")], [])
        self.assertEqual(optimizer_of(out), optimizer_of(PADDLE / "n-dp2-O2-rm"))

    def test_codes_whose_index_is_gone(self):
        source = self.folder / "source"
        shutil.copytree(PADDLE / "n-dp2-O1", source)
        index = source / "optimizer.safetensors.index.json"
        index.rename(self.folder / index.name)
        says = ["moment1_0@scales", "no index names their codec (ckpt_quant_stage)", "optimizer.safetensors.index.json",
                "rank 0", "--part"]
        for command in (["inspect"], ["convert", self.folder / "out"]):
            self.bad(1, command[0], source, *command[1:], says=says)
        (self.folder / "rank0").mkdir()
        (self.folder / index.name).rename(self.folder / "rank0" / index.name)
        self.good("convert", source, self.folder / "out", "--part", self.folder / "rank0", "--keep-names")
        self.assertEqual(optimizer_of(self.folder / "out"), optimizer_of(PADDLE / "n-dp2-O1"))

    def test_hugging_face_files_become_paddlenlp_with_codes(self):
        between, out = self.folder / "between", self.folder / "out"
        self.good("convert", PADDLE / "n-dp2-O0", between)
        self.good("convert", between, out, "--to", "paddlenlp", "--quant", "paddle-o1", ranks=2)
        self.assertEqual(optimizer_of(out), optimizer_of(PADDLE / "n-dp2-O1"))

    def test_convert_codes_reports_and_refuses(self):
        coded, refused = self.folder / "coded", self.folder / "refused"
        document = self.good("convert", PADDLE / "n-dp2-O0", coded, "--keep-names", "--quant", "q8",
                             "--remove-master-weight", "--report", "--json", ranks=2).json()
        errors = {row["name"]: row for row in document["coding_errors"]}
        self.assertGreater(errors["lm_head.weight/moment1_0"]["update_rms"], 0)
        self.assertLess(max(row["update_rms"] for row in errors.values()), 0.01)
        self.assertNotIn("beyond_figures", document)
        sections = {row["name"]: row for row in self.good("inspect", coded, "--json").json()["sections"]}
        self.assertNotIn("master_weights", sections)
        self.assertEqual(sections["optimizer"]["codings"][0]["codec"], "q8")
        self.bad(1, "convert", PADDLE / "n-dp2-O0", refused, "--keep-names", "--quant", "q8", "--max-update-error", "0.00001", ranks=2,
                 says=["q8 makes its updates wrong by", "0.001 % is allowed"])
        self.assertFalse(refused.exists())

    def test_convert_says_unasked_what_is_coded_worse_than_promised(self):
        source = self.folder / "source"
        roots = [2.0 ** (-73 + i * 7 % 60) for i in range(256 * 128)]  # v spans 120 octaves in every block
        usual = [2.0 ** (-10 + i * 7 % 3) for i in range(256 * 128)]
        for name, tensors in (("model", {"hard": usual, "easy": usual}),
                              ("optimizer", {"hard.exp_avg": roots, "hard.exp_avg_sq": [root * root for root in roots],
                                             "easy.exp_avg": usual, "easy.exp_avg_sq": [root * root for root in usual]})):
            small_files.write_safetensors(source / f"{name}.safetensors",
                                          {key: small_files.values("F32", [256, 128], data) for key, data in tensors.items()})
        for codec in ("q8", "q4", "paddle-o1", "paddle-o2"):
            told = self.good("convert", source, self.folder / codec, "--quant", codec, ranks=2)
            (warning,) = told.warnings
            self.assertRegex(warning, rf"optimizer state of 'hard\.exp_avg': coded worse than the codec's figures; there {codec}")
            document = self.good("convert", source, self.folder / f"{codec}.json", "--quant", codec, "--json", ranks=2).json()
            (row,) = document["beyond_figures"]
            self.assertEqual((row["name"], row["elements"]), ("hard.exp_avg", 256 * 128))
            self.assertLess(row["elements_measured"], row["elements"] / 8)
            self.assertNotIn("coding_errors", document)
            self.assertEqual(sum("'hard.exp_avg'" in note for note in document["notes"]), 1)

    def test_convert_keeps_codes_or_decodes_them(self):
        source = PADDLE / "n-dp2-O2-rm"
        kept, decoded, again = self.folder / "kept", self.folder / "decoded", self.folder / "again"
        self.good("convert", source, kept, "--keep-names", ranks=2)
        before, after = optimizer_of(source), optimizer_of(kept)
        self.assertEqual(before, after)
        self.assertEqual(json.loads((kept / "cairn.json").read_text())["quantisation"], {"optimizer": "paddle-o2"})
        self.good("verify", kept)
        self.good("convert", kept, decoded, "--keep-names", "--quant", "off", ranks=3)
        self.good("convert", source, again, "--keep-names", "--quant", "off")
        self.assertEqual({name: data for name, data in snapshot(decoded).items() if name.endswith(".safetensors")},
                         {name: data for name, data in snapshot(again).items() if name.endswith(".safetensors")})
        found = optimizer_of(decoded)
        self.assertFalse([name for name in found if "scales" in name])
        names = [name.removesuffix("/moment1_0@scales") for name in before if name.endswith("/moment1_0@scales")]
        self.assertEqual(len(names), 9)
        for name in names:
            for moment, expected in zip(("moment1_0", "moment2_0"), decode_o2(before, name)):
                values = floats(found[f"{name}/{moment}"])
                self.assertEqual(len(values), len(expected))
                for value, wanted in zip(values, expected):
                    self.assertTrue(math.isclose(value, wanted, rel_tol=1e-4, abs_tol=1e-18), (name, value, wanted))

    def test_other_forms_hold_values(self):
        source = PADDLE / "n-dp2-O1"
        self.good("convert", source, self.folder / "decoded", "--keep-names", "--quant", "off")
        text = self.good("convert", source, self.folder / "shards", "--to", "shards", "--layout", "fsdp=2").out
        self.assertIn("note: shards hold no codes", text)
        self.assertIn("equal:", self.good("diff", self.folder / "shards", self.folder / "decoded").out)
        self.bad(2, "convert", source, self.folder / "x", "--quant", "q9", says=["--quant"])

    def test_the_rule_of_division_is_the_users(self):
        source = PADDLE / "n-dp2-O1"
        self.good("convert", source, self.folder / "new", "--keep-names", "--quant", "off")
        self.good("convert", source, self.folder / "old", "--keep-names", "--quant", "off", "--paddle-reciprocals")
        document = self.differs("diff", self.folder / "new", self.folder / "old", "--json").json()
        self.assertTrue(document["differences"])
        self.good("diff", source, self.folder / "old", "--paddle-reciprocals")
        document = self.good("diff", self.folder / "new", self.folder / "old", "--rtol", "1e-5", "--json").json()
        self.assertEqual((document["equal"], document["close"], document["rtol"], document["atol"]), (False, True, 1e-5, 0))
        self.assertEqual({row["verdict"] for row in document["differences"]}, {"close"})
        self.assertEqual({row["elements_outside"] for row in document["differences"]}, {0})

    def test_the_rule_of_division_without_effect_is_an_error(self):
        plain, out = PADDLE / "n-dp2-O0", self.folder / "out"
        for command, why in ((["convert", plain, out], "has no such"), (["diff", plain, plain], "has no such"),
                             (["convert", PADDLE / "n-dp2-O1", out, "--keep-names"], "on codes that are kept")):
            self.bad(2, *command, "--paddle-reciprocals", says=["reciprocals", why])
            self.bad(2, *command, "--paddle-reciprocals", ranks=2, says=["reciprocals", why])
        self.assertFalse(out.exists())

    def differs(self, *arguments):
        result = cairn(*arguments)
        self.assertEqual((result.code, result.errors), (1, []), result.err)
        return result

    def test_diff_compares_moments_with_moments(self):
        plain, coded = PADDLE / "n-dp2-O0", PADDLE / "n-dp2-O1"
        document = self.differs("diff", plain, coded, "--json").json()
        self.assertEqual(document["tensors"], 12 * 6)
        rows = {row["name"]: row for row in document["differences"]}
        self.assertEqual({row["verdict"] for row in rows.values()}, {"differs"})
        self.assertEqual({name.rsplit("/", 1)[1] for name in rows}, {"moment1_0", "moment2_0"})
        name = "lm_head.weight/moment1_0"
        largest = rows[name]["max_abs_difference"]
        scale = max(floats(optimizer_of(coded)[f"{name}@scales"]))
        self.assertLessEqual(largest, scale / 254 * 1.0001)
        self.assertEqual(rows[name]["elements_outside"], rows[name]["elements_differing"])
        self.assertNotIn("outside", self.differs("diff", plain, coded).out)
        text = self.good("diff", plain, coded, "--atol", "1").out
        self.assertIn("close: 72 tensors, 24 of them not equal bit for bit", text)
        self.assertRegex(text, r"differing +outside +of")
        document = self.differs("diff", plain, coded, "--atol", str(largest / 2), "--json").json()
        row = {row["name"]: row for row in document["differences"]}[name]
        self.assertTrue(0 < row["elements_outside"] < row["elements_differing"], row)
        for wrong in (["--rtol", "-1"], ["--atol", "nan"], ["--rtol", "x"]):
            self.bad(2, "diff", plain, coded, *wrong)

    def test_what_is_damaged_is_refused_by_name(self):
        source = self.folder / "source"
        shutil.copytree(PADDLE / "n-dp2-O1", source)
        (path,) = source.glob("optimizer-*.safetensors")
        tensors, metadata = small_files.read_safetensors(path)
        name = "lm_head.weight/moment2_0@min_scales"
        dtype, shape, data = tensors[name]
        tensors[name] = dtype, shape, data[:-4] + struct.pack("<f", math.nan)
        small_files.write_safetensors(path, tensors, metadata)
        self.bad(1, "convert", source, self.folder / "out", "--quant", "off", says=[name, "nan"], ranks=2)
        self.bad(1, "diff", source, PADDLE / "n-dp2-O1", says=[name])
        self.assertFalse((self.folder / "out").exists())
        tensors[name] = dtype, [48, 2], data
        small_files.write_safetensors(path, tensors, metadata)
        self.bad(1, "inspect", source, says=[name, "[48, 2]", "[96]"])
        del tensors[name]
        small_files.write_safetensors(path, tensors, metadata)
        self.bad(1, "inspect", source, says=[name, "missing"])

    def test_weights_that_were_left_out(self):
        kept, whole = self.folder / "kept", self.folder / "whole"
        self.good("convert", PADDLE / "n-dp2-O2-rm", kept)
        manifest = kept / "cairn.json"
        content = json.loads(manifest.read_text())
        content["rebuilt"] = {"master_weights": {"from": "model", "dtype": "F32"}}
        small_files.write_manifest(manifest, content)
        self.assertIn("master_weights: what is left out is made from model in F32", self.good("inspect", kept).out)
        rules = self.good("inspect", kept, "--json").json()["rebuilt"]
        self.assertEqual(rules, [{"section": "master_weights", "from": "model", "dtype": "F32"}])
        self.good("convert", kept, whole, "--quant", "off", ranks=2)
        (made,) = (small_files.read_safetensors(path)[0] for path in whole.glob("master_weights*.safetensors"))
        (model,) = (small_files.read_safetensors(path)[0] for path in kept.glob("model*.safetensors"))
        self.assertEqual(len(made), 12)
        for name, (dtype, shape, data) in model.items():
            wide = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
            self.assertEqual((dtype, made[name]), ("BF16", ("F32", shape, wide)))
        content["rebuilt"] = ["master_weights"]
        small_files.write_manifest(manifest, content)
        for command in (["inspect", kept], ["convert", kept, self.folder / "out", "--quant", "off"], ["diff", kept, whole]):
            self.bad(1, *command, says=["cairn.json", "rebuilt"])


if __name__ == "__main__":
    main()
