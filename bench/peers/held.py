"""The state of one rank of a Python peer: torch tensors of its boxes, filled or checked by values.py, alone or as
DTensors."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import workload
from values import Values

TORCH_DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32}
SIGNED = {"BF16": torch.int16, "F32": torch.int32}


def bits_of(tensor, dtype):
    """A numpy view of the tensor's memory as unsigned integers."""
    return tensor.view(SIGNED[dtype]).numpy().view(f"u{tensor.element_size()}")


class Held:
    def __init__(self, config, layout_text, rank, fill):
        self.layout = workload.Layout.parse(layout_text)
        self.tensors = workload.tensors_of(config)
        self.layers = config["num_hidden_layers"]
        self.rank = rank
        self.boxes, self.local = {}, {}
        for tensor in self.tensors:
            box = self.layout.box_of(tensor, rank, self.layers)
            if box is None:
                continue
            self.boxes[tensor.key] = box
            self.local[tensor.key] = torch.empty(box.shape, dtype=TORCH_DTYPES[tensor.dtype])
            # The kernel would otherwise give untouched memory inside the clock.
            bits = bits_of(self.local[tensor.key], tensor.dtype)
            if fill:
                Values(tensor).fill(box, bits)
            else:
                bits.fill(0xFFFF if tensor.dtype == "BF16" else 0xFFFFFFFF)

    def is_equal(self, found=None):
        """Whether `found` (default: the held tensors) has every byte of the truth; False when there is
        nothing to compare."""
        found = self.local if found is None else found
        by_key = {tensor.key: tensor for tensor in self.tensors}
        return bool(self.boxes) and found.keys() == self.boxes.keys() and all(
            Values(by_key[key]).is_equal(box, bits_of(found[key].contiguous(), by_key[key].dtype))
            for key, box in self.boxes.items())

    def distributed(self):
        """{key: DTensor} over the meshes of the layout. Collective."""
        if self.layout.fsdp:
            mesh = init_device_mesh("cpu", (self.layout.fsdp,), mesh_dim_names=("fsdp",))
        else:
            mesh = init_device_mesh("cpu", (self.layout.pp, self.layout.tp), mesh_dim_names=("pp", "tp"))["tp"]
        by_key = {tensor.key: tensor for tensor in self.tensors}
        out = {}
        for key, local in self.local.items():
            tensor = by_key[key]
            dimension = self.layout.cut_dimension(tensor)
            stride = tuple(torch.empty(tensor.shape, device="meta").stride())
            out[key] = DTensor.from_local(local, mesh, [Replicate() if dimension is None else Shard(dimension)],
                                          run_check=False, shape=torch.Size(tensor.shape), stride=stride)
        return out
