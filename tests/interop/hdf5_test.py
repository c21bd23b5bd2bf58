"""h5py and h5dump open the files of `cairn convert x.h5` and find the saved values;
`cairn` reads its own files on other numbers of ranks."""

import shutil
import subprocess

import h5py
import numpy
import torch
from safetensors.torch import load_file, save_file

import support

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
    "f8_e4m3": torch.float8_e4m3fn, "f8_e5m2": torch.float8_e5m2, "c64": torch.complex64,
}
# Types that HDF5 lacks are stored as unsigned integers of their width.
AS_INTEGERS = {torch.bfloat16: torch.uint16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}


def some_tensors():
    generator = torch.Generator().manual_seed(11)
    tensors = {}
    for name, dtype in DTYPES.items():
        numbers = torch.randint(-50, 50, (37, 5, 3), generator=generator)
        tensors[f"layer.{name}"] = (numbers > 0) if dtype == torch.bool else numbers.to(dtype)
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.zeros(0, 7)
    tensors["with/slash"] = torch.arange(10, dtype=torch.float32)
    tensors["Gewicht-ä"] = torch.arange(11, dtype=torch.float32)
    tensors["large"] = torch.arange(3_000_000, dtype=torch.int32).reshape(1500, 2000)
    return tensors


def expected_array(tensor):
    tensor = tensor.view(AS_INTEGERS[tensor.dtype]) if tensor.dtype in AS_INTEGERS else tensor
    return tensor.numpy()


class Hdf5(support.TestCase):
    def setUp(self):
        self.source = support.fresh("source")
        self.source.mkdir()
        self.tensors = some_tensors()
        save_file(self.tensors, self.source / "model.safetensors", metadata={"format": "pt"})
        (self.source / "config.json").write_text('{"model_type": "tiny"}')
        self.file = support.fresh("state.h5")
        self.file.unlink(missing_ok=True)
        version = support.cairn("--version")
        if "HDF5: none" in version:
            self.skipTest("this build has no HDF5")

    def stage(self, ranks=3):
        support.cairn("convert", self.source, self.file, "--memory", "32MiB", ranks=ranks)

    def test_h5py_finds_the_values(self):
        self.stage()
        compared = 0
        with h5py.File(self.file, "r") as opened:
            self.assertEqual(opened.attrs["cairn_format_version"], 1)
            self.assertEqual(opened["cairn/files/config.json"][()].tobytes(), b'{"model_type": "tiny"}')
            self.assertEqual(sorted(opened), ["cairn", "model"])
            names = {name.replace("/", "%2F"): name for name in self.tensors}
            self.assertEqual(sorted(opened["model"]), sorted(names))
            for link, dataset in opened["model"].items():
                name = names[link]
                expected = expected_array(self.tensors[name])
                self.assertEqual(dataset.attrs["name"].decode(), name)
                self.assertEqual(dataset.attrs["section"], b"model")
                self.assertEqual(dataset.dtype, expected.dtype, name)
                self.assertEqual(dataset.shape, expected.shape, name)
                self.assertTrue(numpy.array_equal(dataset[()], expected), name)
                compared += 1
            self.assertEqual(opened["model/layer.bf16"].attrs["dtype"], b"BF16")
            bf16 = torch.from_numpy(opened["model/layer.bf16"][()]).view(torch.bfloat16)
            self.assertTrue(torch.equal(bf16, self.tensors["layer.bf16"]))
            self.assertEqual(opened["model/large"].id.get_offset() % 4096, 0)
            self.assertEqual(opened["model/large"].chunks, None)
        self.assertEqual(compared, len(self.tensors))

    def test_h5dump_finds_the_values(self):
        if not shutil.which("h5dump"):
            self.skipTest("h5dump is not installed")
        self.stage()
        whole = subprocess.run(["h5dump", self.file], capture_output=True, text=True, check=True)
        self.assertEqual(whole.stderr, "")
        self.assertIn('DATASET "layer.bf16"', whole.stdout)
        one = subprocess.run(["h5dump", "-y", "-w", "0", "-d", "/model/layer.f32", self.file], capture_output=True, text=True,
                             check=True).stdout
        data = one.split("DATA {")[1].split("}")[0].replace("\n", " ").split(",")
        self.assertEqual([float(value) for value in data], self.tensors["layer.f32"].reshape(-1).tolist())

    def test_any_number_of_ranks_writes_the_same_file_and_reads_it(self):
        self.stage(ranks=1)
        first = self.file.read_bytes()
        for ranks in (2, 4):
            self.file.unlink()
            self.stage(ranks=ranks)
            self.assertTrue(self.file.read_bytes() == first, f"{ranks} ranks write another file")
        for ranks in (1, 3):
            back = support.fresh("back")
            support.cairn("convert", self.file, back, ranks=ranks)
            found = load_file(back / "model.safetensors")
            self.assertEqual(sorted(found), sorted(self.tensors))
            for name, tensor in self.tensors.items():
                self.assertEqual((found[name].dtype, found[name].shape), (tensor.dtype, tensor.shape), name)
                self.assertTrue(numpy.array_equal(expected_array(found[name]), expected_array(tensor)), name)
            self.assertEqual((back / "config.json").read_text(), '{"model_type": "tiny"}')

    def test_what_others_changed_is_seen(self):
        self.stage()
        with h5py.File(self.file, "r+") as opened:
            opened["model/layer.f32"][0, 0, 0] += 1
        with self.assertRaises(AssertionError) as raised:
            support.cairn("diff", self.source, self.file, ranks=2)
        self.assertIn("layer.f32", str(raised.exception))
        self.assertIn("different: 1 of", str(raised.exception))

    def test_repacked_and_foreign_files_are_refused(self):
        self.stage()
        with h5py.File(self.file, "r+") as opened:
            data = opened["model/layer.f32"][()]
            attributes = dict(opened["model/layer.f32"].attrs)
            del opened["model/layer.f32"]
            changed = opened["model"].create_dataset("layer.f32", data=data, chunks=(10, 5, 3), compression="gzip")
            changed.attrs.update(attributes)
        with self.assertRaises(AssertionError) as raised:
            support.cairn("inspect", self.file)
        self.assertIn("is not contiguous", str(raised.exception))
        with h5py.File(self.file, "r+") as opened:
            del opened["model/layer.f32"]
            opened["model/layer.f32"] = h5py.ExternalLink("elsewhere.h5", "/secret")
        with self.assertRaises(AssertionError) as raised:
            support.cairn("inspect", self.file)
        self.assertIn("is a link to somewhere else", str(raised.exception))
        with h5py.File(self.file, "r+") as opened:
            del opened["model/layer.f32"]
            changed = opened["model"].create_dataset("layer.f32", data.shape, data.dtype,
                                                     external=[(str(self.source / "config.json"), 0, data.nbytes)])
            changed.attrs.update(attributes)
        with self.assertRaises(AssertionError) as raised:
            support.cairn("inspect", self.file)
        self.assertIn("has its bytes in other files, which are not opened", str(raised.exception))
        self.file.unlink()
        with h5py.File(self.file, "w") as opened:
            opened["x"] = numpy.arange(10)
        with self.assertRaises(AssertionError) as raised:
            support.cairn("inspect", self.file)
        self.assertIn("an HDF5 file, but none that Cairn wrote", str(raised.exception))


if __name__ == "__main__":
    support.main()
