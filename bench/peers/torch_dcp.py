"""torch.distributed.checkpoint on gloo: its own files and its Hugging Face writers (asynchronous: torch_async.py).

FileSystemWriter syncs its files itself (sync_files=True, the default), but neither the directories nor the consolidated
files. These syncs are added here, inside the clock: a save that is not on disk is not comparable.
"""

import os
import pathlib

import torch.distributed
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files_on_every_rank
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

import final_files
import ranks
import workload as work
from held import Held
from ranks import timed
from storage import fsync_path
from system import SAVE_LAYOUT, Measured, System


def _save(rank, _size, directory, config, setting):
    state = Held(config, SAVE_LAYOUT, rank, fill=True).distributed()
    return timed(lambda: _save_durably(rank, state, directory, setting))


def _save_durably(rank, state, directory, setting):
    dcp.save(state, storage_writer=dcp.FileSystemWriter(directory, sync_files=True, **setting))
    if rank == 0:
        fsync_path(directory)


def _load(rank, _size, directory, config, layout):
    held = Held(config, layout, rank, fill=False)
    state = held.distributed()
    seconds = timed(lambda: dcp.load(state, storage_reader=dcp.FileSystemReader(directory)))
    return seconds, held.is_equal({key: tensor.to_local() for key, tensor in state.items()})


def load_on(directory, workload, layout):
    results = ranks.run(work.Layout.parse(layout).ranks, _load, str(directory), workload.config, layout)
    return Measured(max(seconds for seconds, _ in results), equal=all(equal for _, equal in results))


class Dcp(System):
    name = "dcp"
    title = "torch DCP, dcp.save"

    def save_settings(self):
        return [{"thread_count": 1}, {"thread_count": 4}]

    def save(self, workload, directory, setting):
        return Measured(max(ranks.run(4, _save, str(directory), workload.config, setting)))

    def load(self, workload, directory, layout, setting):
        return load_on(directory, workload, layout)


def _fsync_final_files(rank, size, directory):
    """The ranks share the files; rank 0 syncs the directory."""
    files = sorted(path for path in pathlib.Path(directory).iterdir() if path.is_file())
    for path in files[rank::size]:
        fsync_path(path)
    torch.distributed.barrier()
    if rank == 0:
        fsync_path(directory)


def _save_hugging_face(rank, size, directory, config, max_file_bytes, setting):
    held = Held(config, SAVE_LAYOUT, rank, fill=True)
    state, mapping = held.distributed(), work.files_of(held.tensors, max_file_bytes)

    def consolidated_by_coordinator():
        writer = HuggingFaceStorageWriter(
            directory, fqn_to_index_mapping=mapping, save_distributed=True, enable_consolidation=True, **setting)
        dcp.save(state, storage_writer=writer)
        _fsync_final_files(rank, size, directory)

    def consolidated_by_all():
        shards = os.path.join(directory, "sharded")
        writer = HuggingFaceStorageWriter(shards, fqn_to_index_mapping=mapping, save_distributed=True,
                                          thread_count=setting["thread_count"])
        writer.sync_files = setting["sync_shards"]
        dcp.save(state, storage_writer=writer)
        consolidate_safetensors_files_on_every_rank(shards, directory, mapping, setting["thread_count_consolidation"])
        _fsync_final_files(rank, size, directory)

    return timed(consolidated_by_all if "sync_shards" in setting else consolidated_by_coordinator)


class DcpHuggingFace(System):
    name = "dcp-hf"
    title = "torch DCP, HuggingFaceStorageWriter with consolidation"
    loads = False

    def save_settings(self):
        return [{"thread_count": count, "thread_count_consolidation": count} for count in (1, 4)]

    def save(self, workload, directory, setting):
        seconds = ranks.run(4, _save_hugging_face, str(directory), workload.config, workload.max_file_bytes, setting)
        return Measured(max(seconds))

    def is_saved_right(self, workload, directory):
        return final_files.are_right(directory, workload.config, final_files.places_in_one_namespace)


class DcpHuggingFaceOnAllRanks(DcpHuggingFace):
    name = "dcp-hf-all"
    title = "the same, shards not synced, consolidated by every rank"

    def save_settings(self):
        return [{"thread_count": count, "thread_count_consolidation": count, "sync_shards": False} for count in (1, 4)]
