"""`cairn convert`: the same tensors in other files, nothing half done."""

import json
import math
import os
import pathlib
import re
import stat
import struct

from program import CairnTest, cairn, main, snapshot
from small_files import FIRST, INDEX, counting, read_checkpoint, read_safetensors, two_shards, values, write_index, write_safetensors


class Convert(CairnTest):
    def setUp(self):
        super().setUp()
        self.source = self.folder / "source"
        files = two_shards(self.source)
        self.tensors = {name: tensor for tensors in files.values() for name, tensor in tensors.items()}
        self.destination = self.folder / "destination"

    def check(self):
        found = read_checkpoint(self.destination)
        self.assertEqual(found, self.tensors)
        self.assertEqual(len(found), 3)

    def test_into_one_file_alone(self):
        text = self.good("convert", self.source, self.destination).out
        self.check()
        self.assertEqual([path.name for path in self.destination.glob("*.safetensors")], ["model.safetensors"])
        self.assertEqual(read_safetensors(self.destination / "model.safetensors")[1], {"format": "pt"})
        self.assertEqual((self.destination / "config.json").read_bytes(), (self.source / "config.json").read_bytes())
        self.assertIn("converted 3 tensors", text)
        self.assertRegex(text, r"(?m)^total ")

    def test_any_number_of_ranks_writes_the_same_bytes(self):
        self.good("convert", self.source, self.destination, "--max-file-size", "100B")
        self.check()
        self.assertGreater(len(list(self.destination.glob("*.safetensors"))), 1)
        for ranks in (2, 4):
            other = self.folder / f"by-{ranks}"
            self.good("convert", self.source, other, "--max-file-size", "100B", ranks=ranks)
            self.assertEqual(snapshot(other), snapshot(self.destination))

    def test_sizes_and_engines(self):
        for engine, hints in (("posix", ()), ("mpiio", ("--hint", "romio_cb_write=disable"))):
            self.destination = self.folder / engine
            document = self.good("convert", self.source, self.destination, "--engine", engine, "--align", "64KiB",
                                 "--block-size", "4KiB", "--memory", "32MiB", *hints, "--json", ranks=2).json()
            self.check()
            self.assertEqual((document["tensors"], document["size_bytes"], document["engine"]), (3, 212, engine))
            content = (self.destination / "model.safetensors").read_bytes()
            self.assertEqual((8 + int.from_bytes(content[:8], "little")) % 65536, 0)
            self.assertIn("good:", self.good("verify", self.destination).out)

    def test_mode_and_group(self):
        group = os.getegid()
        before = os.umask(0o077)
        try:
            self.good("convert", self.source, self.destination, "--mode", "664", "--group", group, ranks=2)
        finally:
            os.umask(before)
        self.check()
        found = {path: path.stat() for path in [self.destination, *self.destination.iterdir()]}
        self.assertGreater(len(found), 3)
        for path, status in found.items():
            mode = 0o775 if path.is_dir() else 0o664
            self.assertEqual((stat.S_IMODE(status.st_mode), status.st_gid), (mode, group), path)
        for option, value, message in (("--mode", "68", "octal digits"), ("--mode", "4755", "more than permission bits"),
                                       ("--group", "no such group", "there is no group")):
            self.bad(2, "convert", self.source, self.folder / "refused", option, value, says=(message,))
            self.assertFalse((self.folder / "refused").exists())

    def test_shards_of_a_layout_and_back(self):
        self.good("convert", self.source, self.folder / "shards", "--to", "shards", "--layout", "fsdp=2", ranks=3)
        names = [path.name for path in (self.folder / "shards").glob("*.safetensors")]
        self.assertEqual(sorted(name[:12] for name in names), ["shard-00001-", "shard-00002-"])
        self.good("convert", self.folder / "shards", self.destination)
        self.check()
        self.assertIn("equal: 3 tensors", self.good("diff", self.source, self.folder / "shards").out)

    def test_a_layout_from_a_file(self):
        self.good("convert", self.source, self.folder / "shards", "--to", "shards", "--layout", "fsdp=3")
        layout = self.good("inspect", self.folder / "shards", "--json").json()["manifest"]["layout"]
        (self.folder / "layout.txt").write_text(layout)
        self.good("convert", self.source, self.folder / "again", "--to", "shards", "--layout", f"@{self.folder}/layout.txt")
        self.assertEqual(snapshot(self.folder / "again"), snapshot(self.folder / "shards"))

    def test_a_destination_that_exists_is_left_alone(self):
        self.destination.mkdir()
        (self.destination / "mine").write_text("keep")
        self.bad(2, "convert", self.source, self.destination, says=[self.destination])
        self.assertEqual(snapshot(self.destination), {"mine": b"keep"})

    def test_a_destination_in_the_source(self):
        own, link = self.folder / "own", self.folder / "link"
        self.good("convert", self.source, own)
        link.symlink_to(own)
        before = snapshot(self.folder)
        for source, destination in ((self.source, self.source / "in"), (own, link / "in"), (link, own / "a" / "in"),
                                    (own, self.folder / "other" / ".." / "own" / "in"), (own, own / "in.h5")):
            result = self.bad(2, "convert", source, destination, says=["lies in", "choose a place outside of it"])
            self.assertNotIn("HDF5", result.err)
        self.bad(2, "convert", own, link / "in", ranks=2, says=["lies in"])
        self.assertEqual(snapshot(self.folder), before)
        self.good("convert", self.source / FIRST, self.source / "in")

    def test_small_files_whose_names_no_checkpoint_can_have(self):
        for name in (b"a\\b.json", b"c:x.json", b"C:x.txt", b"\xff.json"):
            with self.subTest(name):
                path = os.path.join(os.fsencode(self.source), name)
                with open(path, "w", encoding="utf-8") as stream:
                    stream.write("{}")
                shown = name.decode("latin-1").replace("\\", "\\x5c").replace("\xff", "\\xff")
                for form in ((), ("--to", "shards", "--layout", "fsdp=2")):
                    self.bad(2, "convert", self.source, self.destination, *form, says=[f"'{shown}' cannot be carried along"])
                staging = self.bad(2, "convert", self.source, self.folder / "x.h5")
                self.assertRegex(staging.err, f"'{re.escape(shown)}' cannot be carried along|built without HDF5")
                self.assertEqual(os.listdir(self.folder), ["source"])
                os.unlink(path)
        self.good("convert", self.source, self.destination)

    def test_sections_whose_names_no_file_can_have(self):
        for section in (b"a\\b", b"\xff"):
            with self.subTest(section):
                path = os.path.join(os.fsencode(self.source), section + b".safetensors")
                write_safetensors(self.source / "new", {"x": counting("F32", [2])})
                os.rename(self.source / "new", path)
                self.bad(2, "convert", self.source, self.destination, says=["section '"])
                if section == b"\xff":
                    self.bad(2, "convert", self.source, self.destination, "--to", "shards", "--layout", "fsdp=2",
                             says=["section '\\xff' is not UTF-8", "rename"])
                self.assertEqual(os.listdir(self.folder), ["source"])
                os.unlink(path)

    def test_configurations_as_python_writes_them(self):
        config = ('{"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 32,\n'
                  ' "intermediate_size": 12, "intermediate_size": 16, "time_step_limit": [0.0, Infinity], "floor": -Infinity,\n'
                  ' "eps": NaN, "large": 1e999, "mark": "\\ud800", "transformers_version": "4.57.0 \\udfff"}')
        state = '{"global_step": 7, "global_step": 12, "log_history": [{"loss": NaN, "note": "\\ud83d"}]}'
        (self.source / "config.json").write_text(config)
        (self.source / "trainer_state.json").write_text(state)
        about = self.good("inspect", self.source, "--json").json()["about"]
        self.assertEqual((about["step"], about["version"], about["left"]), (12, "transformers 4.57.0 \ufffd\ufffd\ufffd", []))
        for form in ((), ("--to", "shards", "--layout", "fsdp=2"), ("--to", "paddleformers")):
            with self.subTest(form):
                destination = self.folder / f"as-{form[1] if form else 'hf'}"
                result = self.good("convert", self.source, destination, *form)
                self.assertNotIn("not valid", result.out + result.err)
                for name, text in (("config.json", config), ("trainer_state.json", state)):
                    self.assertEqual((destination / name).read_text(), text)
                manifest = json.loads((destination / "cairn.json").read_text(), parse_constant=self.fail)
                self.assertEqual(manifest["step"], 12)
                self.good("verify", destination)
        for text, says in (("\ufeff" + config, "byte order mark"), (config[:-1] + ",}", "not valid JSON at byte")):
            (self.source / "config.json").write_text(text)
            self.bad(1, "convert", self.source, self.folder / "out", "--to", "shards", "--layout", "fsdp=2",
                     says=["config.json: ", says])
            self.assertFalse((self.folder / "out").exists())

    def test_a_state_without_tensors_is_nothing_to_resume_from(self):
        empty = self.folder / "empty"
        write_safetensors(empty / "model.safetensors", {})
        for form in ("hf", "paddlenlp", "paddleformers"):
            self.bad(2, "convert", empty, self.destination, "--to", form, says=[empty, "no tensors"])
        self.assertFalse(self.destination.exists())

    def test_nothing_is_left_after_a_failure(self):
        for fault in ("write:after=1", "fsync", "rename:path=destination", "open:path=destination:errno=ENOSPC"):
            for ranks in (None, 3):
                with self.subTest(fault=fault, ranks=ranks):
                    self.bad(1, "convert", self.source, self.destination, "--engine", "posix", ranks=ranks, CAIRN_FAULT=fault)
                    self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["source"])
        self.good("convert", self.source, self.destination)
        self.check()


class Choice(CairnTest):
    """--section and --name: some of the tensors of a model and its optimizer."""

    def setUp(self):
        super().setUp()
        self.source, self.destination = self.folder / "source", self.folder / "destination"
        self.files = two_shards(self.source)
        self.moments = {"a.weight/moment1_0": counting("F32", [64, 64]), "a.weight/moment2_0": counting("F32", [64, 64], 7),
                        "b.weight/moment1_0": counting("F32", [64, 96]), "b.weight/moment2_0": counting("F32", [64, 96], 9)}
        write_safetensors(self.source / "optimizer.safetensors", self.moments)

    def convert(self, *options, **how):
        return self.good("convert", self.source, self.destination, *options, "--json", **how).json()

    def names(self):
        return {path.name for path in self.destination.iterdir()} - {"cairn.json", "cairn.blocks", "config.json"}

    def test_a_section(self):
        for ranks in (None, 3):
            self.destination = self.folder / f"by-{ranks}"
            document = self.convert("--section", "mod*", "--max-file-size", "100B", ranks=ranks)
            self.assertEqual((document["tensors"], document["size_bytes"]), (3, 212))
            self.assertIn("3 of 7 tensors are converted, as --section and --name say", document["notes"])
            weights = {name: tensor for tensors in self.files.values() for name, tensor in tensors.items()}
            self.assertEqual(read_checkpoint(self.destination), weights)
            index = json.loads((self.destination / INDEX).read_text())
            self.assertEqual((set(index["weight_map"]), index["metadata"]["total_size"]), (set(weights), 212))
            self.assertTrue((self.destination / "config.json").exists())
            self.good("verify", self.destination)

    def test_names_of_several_sections(self):
        document = self.convert("--name", "a.*", "--name", "c.bias")
        self.assertEqual(document["tensors"], 4)
        self.assertEqual(self.names(), {"model.safetensors", "optimizer.safetensors"})
        self.assertEqual(set(read_checkpoint(self.destination)),
                         {"a.weight", "c.bias", "a.weight/moment1_0", "a.weight/moment2_0"})

    def test_sections_and_names_together(self):
        self.convert("--section", "optimizer", "--name", "b.*", "--quant", "q8")
        stored = read_checkpoint(self.destination)
        self.assertEqual({name.split("/")[0] for name in stored}, {"b.weight"})
        again = self.folder / "again"
        self.good("convert", self.destination, again, "--name", "b.weight/moment2_0")  # codes of a pair stay together
        self.assertEqual(read_checkpoint(again), stored)
        shown = self.good("inspect", again, "--json").json()
        self.assertEqual([row["codings"][0]["pairs"] for row in shown["sections"]], [1])

    def test_all_of_them_is_as_without(self):
        self.convert("--name", "*")
        whole = self.folder / "whole"
        self.good("convert", self.source, whole)
        self.assertEqual(snapshot(whole), snapshot(self.destination))

    def test_patterns_that_match_nothing(self):
        for options, words in ((("--section", "adapter"), ("section like 'adapter'", "model, optimizer")),
                               (("--name", "d.*"), ("tensor like 'd.*'", "a.weight", "and 4 more")),
                               (("--section", "model", "--name", "*moment*"),
                                ("tensor of section model like '*moment*'", "a.weight, b.weight, c.bias")),
                               (("--name", "a.*", "--name", "x"), ("like 'x'",))):
            self.bad(1, "convert", self.source, self.destination, *options, says=words)
            self.assertFalse(self.destination.exists())

    def test_a_staging_file(self):
        staging = self.folder / "part.h5"
        result = cairn("convert", self.source, staging, "--name", "b.*", "--section", "optimizer")
        if "HDF5" in result.err:
            self.skipTest("this build has no HDF5")
        self.assertEqual(result.code, 0, result.err)
        self.good("convert", staging, self.destination)
        self.assertEqual(read_checkpoint(self.destination),
                         {name: tensor for name, tensor in self.moments.items() if name.startswith("b.")})

    def test_a_form_that_needs_what_is_left_out(self):
        source = pathlib.Path(os.environ["CAIRN_TEST_DATA"]) / "paddle" / "n-dp2-O0"
        self.bad(2, "convert", source, self.destination, "--to", "paddlenlp", "--name", "*moment1_0", "--name", "*.weight",
                 says=["no '<parameter>/moment2_0'", "(--section and --name leave 36 tensors out)"])
        self.assertFalse(self.destination.exists())

    def test_weights_that_the_source_leaves_out(self):
        small = self.folder / "small"
        half = self.folder / "half"
        write_safetensors(half / "model.safetensors", {"h.weight": ("BF16", [4], bytes(8))})
        write_safetensors(half / "master_weights.safetensors", {"h.weight": values("F32", [4], [0, 0, 0, 0])})
        self.good("convert", half, small, "--remove-master-weight")
        self.bad(2, "convert", small, self.destination, "--section", "model", says=["--quant off"])
        self.good("convert", small, self.destination, "--section", "master_weights", "--quant", "off")
        self.assertEqual(read_checkpoint(self.destination), {"h.weight": values("F32", [4], [0, 0, 0, 0])})


def halves(numbers):
    """F16, rounded to nearest even; too large values are infinite."""
    return b"".join(struct.pack("<e", math.copysign(math.inf, x) if abs(x) >= 65520 else x) for x in numbers)


def brains(numbers):
    """BF16, rounded to nearest even."""
    out = b""
    for x in numbers:
        bits = int.from_bytes(struct.pack("<f", x), "little")
        bits = bits >> 16 | 0x40 if math.isnan(x) else bits + 0x7FFF + (bits >> 16 & 1) >> 16
        out += struct.pack("<H", bits)
    return out


class Dtype(CairnTest):
    """--dtype: weights of another dtype on their way out; all else stays."""

    NUMBERS = (0.0, -0.0, 1.0, 1.001, -3.14159, 65504.0, 65519.0, 65520.0, -1e20, math.inf, -math.inf, math.nan, 2.0**-24,
               2.0**-25, 1.00390625, 1.01171875, 3.3961775e38, 2049.0)

    def setUp(self):
        super().setUp()
        self.source, self.destination = self.folder / "source", self.folder / "destination"
        rows = 40
        self.floats = values("F32", [rows, len(self.NUMBERS)], self.NUMBERS * rows)
        self.model = {"w": self.floats, "n": counting("I64", [3]), "b": ("BOOL", [2], b"\0\1"),
                      "h": ("BF16", [2], brains((1.5, 1e20))), "d": values("F64", [2], (1 / 3, 1e300))}
        self.moments = {"w/moment1_0": self.floats, "w/moment2_0": counting("F32", [rows, len(self.NUMBERS)])}
        write_safetensors(self.source / "model.safetensors", self.model, {"format": "pt"})
        write_safetensors(self.source / "optimizer.safetensors", self.moments)

    def convert(self, *options, **how):
        return self.good("convert", self.source, self.destination, *options, "--json", **how).json()

    def model_of(self, folder):
        return read_safetensors(folder / "model.safetensors")[0]

    def test_rounds_and_counts(self):
        numbers = self.NUMBERS * 40
        for dtype, bytes_of, infinite in (("F16", halves, 40 * 3 + 2), ("BF16", brains, 40 + 1)):
            for ranks in (None, 3):
                self.destination = self.folder / f"{dtype}-{ranks}"
                document = self.convert("--dtype", dtype, "--block-size", "4KiB", ranks=ranks)
                found = self.model_of(self.destination)
                self.assertEqual({name: tensor[0] for name, tensor in found.items()},
                                 {"w": dtype, "n": "I64", "b": "BOOL", "h": dtype, "d": dtype})
                nan_free = [i for i, x in enumerate(numbers) if not math.isnan(x)]
                for i in nan_free:
                    self.assertEqual(found["w"][2][2 * i : 2 * i + 2], bytes_of(numbers[i : i + 1]), numbers[i])
                for i in set(range(len(numbers))) - set(nan_free):
                    bits = int.from_bytes(found["w"][2][2 * i : 2 * i + 2], "little") & 0x7FFF
                    self.assertGreater(bits, 0x7C00 if dtype == "F16" else 0x7F80)
                self.assertEqual((found["n"], found["b"]), (self.model["n"], self.model["b"]))
                self.assertEqual(found["d"][2], bytes_of((1 / 3, math.inf)))
                self.assertEqual(read_safetensors(self.destination / "optimizer.safetensors")[0], self.moments)
                note = f"{infinite} values of section model are too large for {dtype} and became infinite"
                self.assertIn(note, document["notes"])
                self.good("verify", self.destination)
        self.assertEqual(snapshot(self.folder / "F16-None"), snapshot(self.folder / "F16-3"))

    def test_wider_is_exact_and_total_size_right(self):
        document = self.convert("--dtype", "F32", "--name", "h", "--name", "w", "--section", "model", "--max-file-size", "2000B")
        index = json.loads((self.destination / INDEX).read_text())
        self.assertEqual(index["metadata"]["total_size"], len(self.floats[2]) + 8)
        self.assertEqual(document["size_bytes"], len(self.floats[2]) + 8)
        found = read_checkpoint(self.destination)
        self.assertEqual((found["w"], found["h"][0]), (self.floats, "F32"))
        self.assertFalse([note for note in document["notes"] if "infinite" in note])

    def test_with_codes_of_moments(self):
        moments = {"w/moment1_0": counting("F32", [64, 64], 3), "w/moment2_0": counting("F32", [64, 64])}
        write_safetensors(self.source / "optimizer.safetensors", moments)
        coded, both = self.folder / "coded", self.folder / "both"
        self.good("convert", self.source, coded, "--quant", "q8")
        self.convert("--dtype", "BF16", "--quant", "q8")
        self.good("convert", coded, both, "--dtype", "BF16")  # keeps the codes
        for folder in (self.destination, both):
            self.assertEqual(read_safetensors(folder / "optimizer.safetensors"),
                             read_safetensors(coded / "optimizer.safetensors"))
            self.assertEqual(self.model_of(folder)["w"][0], "BF16")
        self.assertEqual(self.model_of(both), self.model_of(self.destination))

    def test_shards_and_staging(self):
        self.convert("--dtype", "BF16")
        shards, back = self.folder / "shards", self.folder / "back"
        self.good("convert", self.source, shards, "--to", "shards", "--layout", "fsdp=2", "--dtype", "BF16", ranks=3)
        self.good("convert", shards, back)
        self.assertEqual(self.model_of(back), self.model_of(self.destination))
        result = cairn("convert", self.source, self.folder / "x.h5", "--dtype", "BF16")
        if "HDF5" not in result.err:
            self.assertEqual(result.code, 0, result.err)
            self.assertIn("became infinite", result.out)
            self.good("convert", self.folder / "x.h5", self.folder / "unstaged")
            self.assertEqual(self.model_of(self.folder / "unstaged"), self.model_of(self.destination))

    def test_what_it_says_of_config_and_of_no_change(self):
        (self.source / "config.json").write_text('{"torch_dtype": "float32"}')
        notes = self.convert("--dtype", "BF16")["notes"]
        self.assertIn("config.json is taken along unchanged, and its torch_dtype is float32, not bfloat16", notes)
        again = self.good("convert", self.destination, self.folder / "again", "--dtype", "BF16", "--json").json()
        self.assertIn("all floating tensors of section model are BF16 already", again["notes"])

    def test_scales_of_codes_stay(self):
        """Whatever the configuration says, and wherever it says it."""
        half, codes = ("F16", [2, 2], bytes(8)), ("I32", [2, 2], bytes(16))
        kinds = {"l.weight_scale": {"l.weight": ("I8", [2, 2], bytes(4)), "l.weight_scale": counting("F32", [2, 1])},
                 "l.scales": {"l.qweight": codes, "l.qzeros": codes, "l.g_idx": ("I32", [2], bytes(8)), "l.scales": half},
                 "l.biases": {"l.weight": ("U32", [2, 2], bytes(16)), "l.biases": half},
                 "l.weight.absmax": {"l.weight": ("U8", [4, 1], bytes(4)), "l.weight.absmax": counting("F32", [1])},
                 "scale": {"weight": ("I8", [2, 2], bytes(4)), "scale": counting("F32", [2]), "bias": half}}
        for name, tensors in kinds.items():
            write_safetensors(self.source / "model.safetensors", {"e.weight": self.floats} | tensors)
            self.bad(2, "convert", self.source, self.destination, "--dtype", "BF16", ranks=None,
                     says=[f"'{name}'", "can be a scale of", "dequantise the model first", "--name"])
            self.assertFalse(self.destination.exists())
        self.convert("--dtype", "BF16", "--name", "e.*")

    def test_integers_that_are_no_codes(self):
        model = {"logit_scale": counting("F32", []), "embeddings.class_embedding": counting("F32", [4]),
                 "embeddings.position_ids": counting("I64", [1, 4]), "norm.weight": counting("F32", [4]),
                 "norm.running_mean": counting("F32", [4]), "norm.num_batches_tracked": counting("I64", []),
                 "attn.bias": ("U8", [1, 1, 2, 2], bytes(4)), "attn.masked_bias": counting("F32", []),
                 "w": counting("F32", [2, 2]), "tokens": ("I32", [2, 2], bytes(16)),
                 "l.weight": counting("F32", [2, 2]), "l.mask": ("BOOL", [2, 2], bytes(4))}
        write_safetensors(self.source / "model.safetensors", model)
        self.convert("--dtype", "BF16")
        self.assertEqual({name for name, tensor in self.model_of(self.destination).items() if tensor[0] == "BF16"},
                         {name for name, tensor in model.items() if tensor[0] == "F32"})

    def test_what_it_refuses(self):
        def refused(*options, says=()):
            self.bad(2, "convert", self.source, self.destination, "--dtype", *options, says=says)
            self.assertFalse(self.destination.exists())

        refused("F64", says=["--dtype"])
        refused("BF16", "--section", "optimizer", says=["none is converted"])
        refused("BF16", "--remove-master-weight", says=["--dtype rounds weights"])
        (self.source / "config.json").write_text('{"quantization_config": {"bits": 4}}')
        refused("BF16", says=["quantization_config"])
        (self.source / "config.json").unlink()
        for dtype, size in (("F8_E4M3", 2), ("F4", 1)):
            write_safetensors(self.source / "model.safetensors", {"q": (dtype, [2], bytes(size))})
            refused("BF16", says=["'q'", dtype, "scales"])

    def test_weights_that_are_left_out(self):
        write_safetensors(self.source / "model.safetensors", {"h": ("BF16", [2], brains((1.5, 2)))})
        write_safetensors(self.source / "master_weights.safetensors", {"h": values("F32", [2], (1.5, 2))})
        for option in ("--remove-master-weight", "--skip-save-model-weight"):
            small = self.folder / option
            self.good("convert", self.source, small, option)
            self.bad(2, "convert", small, self.destination, "--dtype", "F32", says=["--quant off"])
        small = self.folder / "--remove-master-weight"
        self.good("convert", small, self.destination, "--dtype", "F32", "--quant", "off")
        found = self.model_of(self.destination)
        self.assertEqual(found, {"h": values("F32", [2], (1.5, 2))})
        self.bad(2, "convert", self.folder / "--skip-save-model-weight", self.folder / "other", "--dtype", "F16", "--quant",
                 "off", says=["convert without --dtype first"])


class TrustIndex(CairnTest):
    """--trust-index: an index that sends tensors to another file, or lists only some of the tensors of files."""

    BASE = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")

    def setUp(self):
        super().setUp()
        self.source = self.folder / "source"
        self.old, self.new = counting("F32", [4, 4]), counting("F32", [4, 4], 100)
        self.owners = {f"layers.{i}.{name}.weight": file for i, file in enumerate(self.BASE) for name in ("wo", "w1")}
        for i, file in enumerate(self.BASE):
            write_safetensors(self.source / file, {f"layers.{i}.wo.weight": self.old, f"layers.{i}.w1.weight": self.old})

    def check(self, expected, *warnings):
        self.bad(1, "inspect", self.source, says=["--trust-index"])
        self.bad(1, "convert", self.source, self.folder / "refused", says=["--trust-index"])
        self.bad(1, "convert", self.source, self.folder / "refused", says=["--trust-index"], ranks=3)
        for ranks in (None, 3):
            made = self.folder / f"by-{ranks}"
            document = self.good("convert", self.source, made, "--trust-index", "--json", ranks=ranks).json()
            self.assertEqual(read_checkpoint(made), expected)
            for warning in warnings:
                self.assertIn(warning, document["notes"])
            self.assertIn(f"equal: {len(expected)} tensors",
                          self.good("diff", self.source, made, "--trust-index", ranks=ranks).out)
        for warning in warnings:
            self.assertIn(warning, self.good("inspect", self.source, "--trust-index").out)
        self.assertEqual(cairn("verify", self.source, "--trust-index").code, 0)

    def test_an_overlay(self):
        edited = {f"layers.{i}.wo.weight": self.new for i in range(2)}
        write_safetensors(self.source / "model-overlay-edited.safetensors", edited)
        owners = self.owners | {name: "model-overlay-edited.safetensors" for name in edited}
        write_index(self.source, owners, 4 * 64)
        self.check({name: self.old for name in self.owners} | edited,
                   "2 tensors are ignored, which model.safetensors.index.json does not list or has in another file, e.g. "
                   "'layers.0.wo.weight' in model-00001-of-00002.safetensors")

    def test_files_of_which_only_some_tensors_are_used(self):
        owners = {name: file for name, file in self.owners.items() if "wo" in name}
        write_index(self.source, owners, 2 * 64)
        self.check({name: self.old for name in owners},
                   "2 tensors are ignored, which model.safetensors.index.json does not list or has in another file, e.g. "
                   "'layers.0.w1.weight' in model-00001-of-00002.safetensors")

    def test_a_file_that_is_not_listed(self):
        owners = {name: file for name, file in self.owners.items() if file == self.BASE[0]}
        write_index(self.source, owners, 2 * 64)
        self.check({name: self.old for name in owners},
                   "model-00002-of-00002.safetensors is ignored: model.safetensors.index.json does not list it")

    def test_without_an_index_or_on_own_checkpoints_it_is_an_error(self):
        own, other = self.folder / "own", self.folder / "other"
        self.good("convert", self.source, own)
        self.good("convert", self.source, other)
        for path, why in ((self.source, "which has no index"), (own, "a checkpoint of Cairn, whose manifest names the files")):
            for command in (["inspect", path], ["verify", path], ["convert", path, self.folder / "out"], ["diff", path, other]):
                for ranks in (None, 2):
                    with self.subTest(why=why, command=command[0], ranks=ranks):
                        self.bad(2, *command, "--trust-index", ranks=ranks, says=["--trust-index has no effect on", path, why])
        self.assertFalse((self.folder / "out").exists())
        write_index(self.source, self.owners, 4 * 64)
        self.good("diff", own, self.source, "--trust-index")  # one of the two has an index

    def test_a_listed_tensor_that_is_missing_remains_an_error(self):
        write_index(self.source, self.owners | {"gone": self.BASE[0]}, 4 * 64)
        self.bad(1, "inspect", self.source, "--trust-index", says=["'gone' is not in this file"])


if __name__ == "__main__":
    main()
