"""Checkpoints that Paddle wrote, legacy ones included (tests/data/paddle/README.md),
go through shards of another layout, or through two programs that load and save them on other ranks,
and back into the form of either of its packages. The test looks for files and tensors by the rules of Paddle's loaders,
and every tensor is correct. tests/paddle runs the loaders themselves."""

import json
import pickle
import re
import shutil
import struct

import support

NUMBERED = re.compile(r"(\w+)-(\d{5})-of-(\d{5})\.safetensors")
STATES = ("moment1_0", "moment2_0", "beta1_pow_acc_0", "beta2_pow_acc_0")
LINKS = json.loads((support.DATA / "paddle/links.json").read_text(encoding="utf-8"))
LINEAR = re.compile(r"\.(q|k|v|o|gate|up|down)_proj\.weight$")


def read_strictly(file):
    """{name: (dtype, shape, bytes)} and the metadata, as Paddle's fast_safe_open reads: tensors in file order,
    end to end, up to the last byte."""
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata, at, found = header.pop("__metadata__"), 0, {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert begin == at, f"{file}: a gap before {name}"
        at = end
        found[name] = support.Tensor(entry["dtype"], tuple(entry["shape"]), data[8 + length + begin:8 + length + end])
    assert 8 + length + at == len(data), f"{file}: bytes behind the last tensor"
    return found, metadata


def transposed(tensor, bytes_per_element):
    rows, columns = tensor.shape
    elements = [tensor.data[i:i + bytes_per_element] for i in range(0, len(tensor.data), bytes_per_element)]
    data = b"".join(elements[r * columns + c] for c in range(columns) for r in range(rows))
    return support.Tensor(tensor.dtype, (columns, rows), data)


class PaddleBack(support.TestCase):
    def load(self, directory, kind):
        """The tensors of a kind by its index, and the rest of the index."""
        index = json.loads((directory / f"{kind}.safetensors.index.json").read_text(encoding="utf-8"))
        files = sorted({*index["weight_map"].values()})
        for number, file in enumerate(files):
            self.assertEqual(NUMBERED.fullmatch(file).groups(), (kind, f"{number + 1:05}", f"{len(files):05}"))
        self.assertEqual([file.name for file in support.data_files(directory) if file.name.startswith(kind + "-")], files)
        tensors, formats = {}, set()
        for file in files:
            found, metadata = read_strictly(directory / file)
            formats.add(metadata["format"])
            for name in found:
                if "@" not in name:
                    self.assertEqual(index["weight_map"].get(name), file)
                self.assertNotIn(name, tensors)
            tensors.update(found)
        self.assertEqual(len(formats), 1)
        return tensors, index, formats.pop()

    def convert(self, source, package, *arguments):
        between, target = support.fresh(source.name + "-shards"), support.fresh(source.name + "-back")
        support.cairn("convert", source, between, "--to", "shards", "--layout", "tp=4,uneven", ranks=self.ranks)
        support.cairn("convert", between, target, "--to", package, *arguments, ranks=self.ranks)
        return target

    def save(self, source, package, *arguments):
        """As a training job that takes over, and another job that continues on other ranks."""
        roots = [support.fresh(f"{source.name}-{name}") for name in ("root", "first", "second")]
        shutil.copytree(source, roots[0] / "checkpoint-3")
        for link, file in LINKS.items():
            if link.startswith(source.name + "/"):
                shutil.copy(support.DATA / "paddle" / file, roots[0] / "checkpoint-3" / link.rpartition("/")[2])
        support.run("save_in_form", roots[0], 3, roots[1], package, *arguments, ranks=self.ranks)
        support.run("save_in_form", roots[1], 3, roots[2], package, *arguments, ranks=4 - self.ranks)
        support.cairn("verify", roots[2] / "checkpoint-3")
        for file in sorted((roots[1] / "checkpoint-3").iterdir()):
            if file.name != "cairn.json":
                self.assertEqual(file.read_bytes(), (roots[2] / "checkpoint-3" / file.name).read_bytes(), file.name)
        return roots[2] / "checkpoint-3"

    def check(self, name, truth_file, package, kind="model", masters=True, expect_times=0, arguments=(), bf16="U16", way=None):
        source = support.DATA / "paddle" / name
        target = (way or self.convert)(source, package, *arguments)
        truth = support.read_file(support.DATA / "paddle/truth" / truth_file)
        compared = 0
        weights, index, file_format = self.load(target, kind)
        self.assertEqual(file_format, "pt" if package == "paddleformers" and kind == "model" else "np")
        self.assertEqual(index.get("type"), "lora" if kind == "peft_model" else None)
        for key, tensor in weights.items():
            expected = truth[f"model/{key}"] if masters else truth[f"master/{key}"]
            if package == "paddleformers" and LINEAR.search(key):
                expected = transposed(expected, 2 if expected.dtype == "BF16" else 4)
            self.assertEqual(tensor, expected._replace(dtype=bf16 if expected.dtype == "BF16" else expected.dtype), key)
            compared += 1
        trained = set(weights)
        if masters:
            held, _, file_format = self.load(target, "master_weights")
            self.assertEqual((set(held), file_format), (trained, "np"))
            for key, tensor in held.items():
                self.assertEqual(tensor, truth[f"master/{key}"], key)
                compared += 1
        states, index, file_format = self.load(target, "optimizer")
        self.assertEqual((index["master_weights"], index["quant_ckpt_resume_times"], file_format), (True, expect_times, "np"))
        self.assertNotIn("ckpt_quant_stage", index)
        self.assertEqual(set(states), {f"{key}/{state}" for key in trained for state in STATES})
        self.assertEqual(index["metadata"]["total_size"], sum(len(tensor.data) for tensor in states.values()))
        for key, tensor in states.items():
            parameter, _, state = key.rpartition("/")
            self.assertEqual((tensor.dtype, tensor.shape), ("F32", truth[f"{state}/{parameter}"].shape), key)
            if not expect_times:
                self.assertEqual(tensor, truth[f"{state}/{parameter}"], key)
            self.assertIn(parameter, trained)
            for both in STATES[:2]:  # both moments of a parameter are in one file
                self.assertEqual(index["weight_map"][f"{parameter}/{both}"], index["weight_map"][key])
            compared += 1
        self.assertEqual(pickle.loads((target / "scheduler.pdparams").read_bytes()),
                         pickle.loads((source / "scheduler.pdparams").read_bytes()))
        print(f"{compared} tensors compared", flush=True)
        return target

    def test_data_parallel(self):
        self.check("n-dp2-O0", "nlp-A.safetensors", "paddlenlp", arguments=("--max-file-size", "20kB"))

    def test_one_card(self):
        target = self.check("n-dp2-O0", "nlp-A.safetensors", "paddlenlp", arguments=("--cards", "1"))
        self.assertEqual(len(support.data_files(target)), 3)

    def test_state_of_a_tied_weight_is_written_under_both_names(self):
        self.check("n-1-O0", "nlp-B.safetensors", "paddlenlp")

    def test_masters_in_place_of_the_model(self):
        self.check("n-dp2-O0-skip", "nlp-A.safetensors", "paddlenlp", masters=False)

    def test_lora(self):
        self.check("n-lora-dp2-O0", "nlp-L.safetensors", "paddlenlp", kind="peft_model")

    def test_legacy(self):
        self.check("n-legacy-tp2", "nlp-S.safetensors", "paddlenlp")
        self.check("n-legacy-sh2v2", "nlp-S.safetensors", "paddlenlp", arguments=("--max-file-size", "20kB"))
        self.check("n-legacy-f32norm-tp2", "nlp-N.safetensors", "paddlenlp")
        self.check("n-legacy-pp2-tied", "nlp-P.safetensors", "paddlenlp")
        self.check("n-legacy-lora-tp2", "nlp-M.safetensors", "paddlenlp", kind="peft_model")

    def test_decoded_moments_count_as_resumed(self):
        self.check("n-tp2-O1", "nlp-A.safetensors", "paddlenlp", expect_times=1)

    def test_paddleformers_gets_its_models_transposed(self):
        self.check("f-dp2-O1", "f-A.safetensors", "paddleformers", expect_times=1, bf16="BF16",
                   arguments=("--max-file-size", "20kB"))

    def test_saves(self):
        self.check("n-dp2-O0", "nlp-A.safetensors", "paddlenlp", arguments=("20000",), way=self.save)
        self.check("n-1-O0", "nlp-B.safetensors", "paddlenlp", way=self.save)
        self.check("n-tp2-O1", "nlp-A.safetensors", "paddlenlp", expect_times=1, way=self.save)
        self.check("n-dp2-O0-skip", "nlp-A.safetensors", "paddlenlp", masters=False, way=self.save)
        self.check("n-lora-dp2-O0", "nlp-L.safetensors", "paddlenlp", kind="peft_model", way=self.save)
        self.check("f-dp2-hf-O0", "f-A.safetensors", "paddleformers", bf16="BF16", way=self.save)

    def test_kept_codes(self):
        source, target = support.DATA / "paddle/n-dp2-O1", support.fresh("kept")
        support.cairn("convert", source, target, "--to", "paddlenlp", "--max-file-size", "20kB", ranks=self.ranks)
        expected, _ = read_strictly(source / "optimizer-00001-of-00001.safetensors")
        found, index, _ = self.load(target, "optimizer")
        self.assert_same_tensors(found, expected)
        old = json.loads((source / "optimizer.safetensors.index.json").read_text(encoding="utf-8"))
        self.assertEqual(dict(index, weight_map=sorted(index["weight_map"])), dict(old, weight_map=sorted(old["weight_map"])))
        for name in found:  # Paddle's loader decodes file by file
            parameter = name.split("/")[0]
            file = target / index["weight_map"][f"{parameter}/moment1_0"]
            self.assertIn(name, read_strictly(file)[0])

    def test_codes_whose_scales_its_loader_mistakes_are_decoded(self):
        target = support.fresh("fused")
        told = support.cairn("convert", support.DATA / "paddle/n-fused-tp2-O1", target, "--to", "paddlenlp", ranks=self.ranks)
        self.assertIn("wrong scales of fused weights", told)
        states, index, _ = self.load(target, "optimizer")
        self.assertEqual({tensor.dtype for tensor in states.values()}, {"F32"})
        self.assertNotIn("ckpt_quant_stage", index)
        self.assertEqual(index["quant_ckpt_resume_times"], 1)

    def test_new_codes_are_those_of_paddle(self):
        target = support.fresh("coded")
        support.cairn("convert", support.DATA / "paddle/n-dp2-O0", target, "--to", "paddlenlp", "--quant", "paddle-o1",
                      ranks=self.ranks)
        found, index, _ = self.load(target, "optimizer")
        expected, _ = read_strictly(support.DATA / "paddle/n-dp2-O1/optimizer-00001-of-00001.safetensors")
        self.assert_same_tensors(found, expected)
        self.assertEqual(index["ckpt_quant_stage"], "O1")


if __name__ == "__main__":
    support.main()
