"""safetensors.torch.save_file, in the two common ways. It does not sync its files; the fsync is added inside the clock.

gather: rank 0 receives every shard, joins the tensors and writes the final Hugging Face files, one after the other, so
that it holds the tensors of one file at a time. shards: every rank writes its tensors into a file of its own, which
only the same layout can read again.
"""

import json
import os

import torch
import torch.distributed
from safetensors import safe_open
from safetensors.torch import save_file

import final_files
import ranks
import workload as work
from held import TORCH_DTYPES, Held
from ranks import timed
from storage import fsync_path
from system import SAVE_LAYOUT, Measured, System


def _gather(held, tensor, holders):
    """The whole tensor on rank 0, None elsewhere. `holders`: [(rank, box)] of its parts, each once."""
    if held.rank != 0:
        if held.rank in dict(holders):
            torch.distributed.send(held.local[tensor.key].view(torch.uint8), dst=0)
        return None
    parts = []
    for rank, box in holders:
        if rank == 0:
            parts.append(held.local[tensor.key])
            continue
        part = torch.empty(box.shape, dtype=TORCH_DTYPES[tensor.dtype])
        torch.distributed.recv(part.view(torch.uint8), src=rank)
        parts.append(part)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=held.layout.cut_dimension(tensor))


def _save_gathered(rank, _size, directory, config, max_file_bytes):
    held = Held(config, SAVE_LAYOUT, rank, fill=True)
    mapping = work.files_of(held.tensors, max_file_bytes)
    count = max(mapping.values())
    holders = {}
    for tensor in held.tensors:
        boxes = {}
        for holder in range(held.layout.ranks):
            box = held.layout.box_of(tensor, holder, held.layers)
            if box is not None:
                boxes.setdefault(box.offset, (holder, box))
        holders[tensor.key] = list(boxes.values())

    def save():
        weight_map = {}
        for number in range(1, count + 1):
            name = f"model-{number:05}-of-{count:05}.safetensors"
            gathered = {}
            for tensor in held.tensors:
                if mapping[tensor.key] == number:
                    gathered[tensor.key] = _gather(held, tensor, holders[tensor.key])
                    weight_map[tensor.key] = name
            if rank == 0:
                path = os.path.join(directory, name)
                save_file(gathered, path, metadata={"format": "pt"})
                fsync_path(path)
        if rank == 0:
            _write_index(directory, held.tensors, weight_map)
            fsync_path(directory)
        torch.distributed.barrier()

    return timed(save)


def _write_index(directory, tensors, weight_map):
    path = os.path.join(directory, "model.safetensors.index.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": work.total_bytes(tensors)}, "weight_map": weight_map}, file, indent=2)
    fsync_path(path)


class Gathered(System):
    name = "safetensors-gather"
    title = "rank 0 gathers, safetensors.torch.save_file"

    def save(self, workload, directory, setting):
        return Measured(max(ranks.run(4, _save_gathered, str(directory), workload.config, workload.max_file_bytes)))

    def is_saved_right(self, workload, directory):
        return final_files.are_right(directory, workload.config, final_files.places_in_one_namespace)

    def load(self, workload, directory, layout, setting):
        results = ranks.run(work.Layout.parse(layout).ranks, final_files.load, str(directory), workload.config, layout)
        return Measured(max(seconds for seconds, _ in results), equal=all(equal for _, equal in results))


def _shard_path(directory, rank):
    return os.path.join(directory, f"rank-{rank:05}.safetensors")


def _save_shards(rank, _size, directory, config):
    held = Held(config, SAVE_LAYOUT, rank, fill=True)

    def save():
        save_file(held.local, _shard_path(directory, rank))
        fsync_path(_shard_path(directory, rank))
        torch.distributed.barrier()
        if rank == 0:
            fsync_path(directory)

    return timed(save)


def _check_shards(rank, _size, directory, config):
    held = Held(config, SAVE_LAYOUT, rank, fill=False)
    with safe_open(_shard_path(directory, rank), framework="pt") as opened:
        return held.is_equal({name: opened.get_tensor(name) for name in opened.keys()})


class Shards(System):
    name = "safetensors-shards"
    title = "each rank its shards, safetensors.torch.save_file"
    loads = False

    def save(self, workload, directory, setting):
        return Measured(max(ranks.run(4, _save_shards, str(directory), workload.config)))

    def is_saved_right(self, workload, directory):
        return all(ranks.run(4, _check_shards, str(directory), workload.config))
