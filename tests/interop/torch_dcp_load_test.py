"""A checkpoint of `cairn convert --to shards` opens in torch.distributed.checkpoint:
its Hugging Face reader finds every tensor whole, though the files hold parts."""

import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageReader

import support


class TorchDcpLoad(support.TestCase):
    def check(self, layout, ranks):
        source = support.DATA / "dcp/hf_consolidated/ckpt"
        shards = support.fresh(f"shards-{ranks}")
        support.cairn("convert", source, shards, "--layout", layout, "--to", "shards", ranks=ranks)
        truth = support.read_file(support.DATA / "dcp/hf_consolidated/truth.safetensors")
        # At least one tensor must be in parts, so that the reader has something to assemble.
        held = [name for file in support.data_files(shards) for name in support.read_file(file)]
        self.assertGreater(len(held), len(truth))
        # Filled with a value that no tensor has throughout, so that an unread element is noticed.
        state = {name: torch.full(tensor.shape, -77.0, dtype=torch.bfloat16) for name, tensor in truth.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the missing process group
            dcp.load(state, storage_reader=HuggingFaceStorageReader(str(shards)), no_dist=True)
        self.assert_same_tensors({name: support.in_memory(tensor) for name, tensor in state.items()}, truth)

    def test_cut_in_four(self):
        self.check("fsdp=4", 4)

    def test_cut_in_three_by_two_ranks(self):
        self.check("fsdp=3", 2)


if __name__ == "__main__":
    support.main()
