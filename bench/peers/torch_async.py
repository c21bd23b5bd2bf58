"""torch.distributed.checkpoint's asynchronous save on gloo: its cost for a program that continues.

A step of the program is ten small matrix products, about a millisecond, and four all_reduce of one number. It
corresponds to a step of `cairn bench --async`: computation and four MPI_Allreduce. The messages of the program and of
the saves use separate groups.
"""

import contextlib
import os
import pathlib
import time

import torch
import torch.distributed
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

import ranks
import storage
from held import Held
from ranks import timed
from system import SAVE_LAYOUT, System, asynchronous
from torch_dcp import load_on

# Options of the stagers that are kept from save to save. Pinned memory and non-blocking copies need a GPU. A copy in a
# thread (use_async_staging) needs the state unchanged until it is done, which is no sooner than a blocking copy.
KEPT_STAGERS = {"kept": {}, "kept, shared memory": {"use_shared_memory": True}}
SAVES = 3


class _Steps:
    """Steps of the program, like those of src/bench/async_runner.cpp."""

    PRODUCTS, MESSAGES = 10, 4

    def __init__(self):
        self.matrix = torch.full((192, 192), 1 / 192)

    def make(self, flag):
        """Collective. Whether `flag` is true on all ranks."""
        product = self.matrix
        for _ in range(self.PRODUCTS):
            product = torch.mm(product, self.matrix)
        everywhere = torch.tensor([int(flag)])
        for _ in range(self.MESSAGES):
            torch.distributed.all_reduce(everywhere, op=torch.distributed.ReduceOp.MIN)
        return bool(everywhere.item())


@contextlib.contextmanager
def _quiet():
    """Silences processes that are started meanwhile: DCP's logs every request. Its errors come back through
    its pipe."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def _store_for_processes(rank):
    """The store in which the processes that DCP starts beside the ranks meet. Without it DCP looks for a free port and
    uses it seconds later, when another program may have it; this store listens from the beginning. Rank 0 must keep
    it; DCP sends its address to the other ranks."""
    os.environ["DCP_USE_PREFIX_STORE"] = "1"
    if rank != 0:
        return None
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port))
    return store


class _Saver:
    """The saver of one rank. Each save has a directory of its own, and reuses the memory of earlier saves."""

    def __init__(self, rank, directory, config, setting, in_process):
        self.rank, self.directory = rank, directory
        self.state = Held(config, SAVE_LAYOUT, rank, fill=True).distributed()
        self.group = torch.distributed.new_group(backend="gloo")
        self.store = _store_for_processes(rank) if in_process else None
        self.type = AsyncCheckpointerType.PROCESS if in_process else AsyncCheckpointerType.THREAD
        self.stager = None
        if setting["stager"] in KEPT_STAGERS:
            self.stager = DefaultStager(StagingOptions(**{
                "use_pinned_memory": False, "use_shared_memory": False, "use_async_staging": False,
                "use_non_blocking_copy": False, **KEPT_STAGERS[setting["stager"]]}))
        self.thread_count = setting["thread_count"]
        self.step = 0

    def next_step(self):
        """Begins a new directory and removes the one before, outside the timed part."""
        if self.rank == 0:
            storage.remove(_step_directory(self.directory, self.step))
        self.step += 1

    def begin(self):
        """Returns the future of a save when the state may be changed again."""
        writer = dcp.FileSystemWriter(_step_directory(self.directory, self.step), sync_files=True,
                                      thread_count=self.thread_count)
        return dcp.async_save(self.state, storage_writer=writer, async_stager=self.stager, process_group=self.group,
                              async_checkpointer_type=self.type)

    def end(self, future):
        """Waits for the save and syncs the directories; DCP syncs only its files."""
        future.result()
        if self.rank == 0:
            storage.fsync_path(_step_directory(self.directory, self.step))
            storage.fsync_path(self.directory)

    def close(self):
        if self.stager is not None:
            self.stager.close()


def _step_directory(directory, step):
    return pathlib.Path(directory) / f"step-{step}"


def _save_thrice(rank, _size, directory, config, setting, in_process):
    """Makes three saves: the first allocates the memory that a trainer would keep, and starts the process;
    the program waits during the second and works during the third. Returns seconds of this rank by name,
    and the number of steps."""
    saver, out = _Saver(rank, directory, config, setting, in_process), {}
    future = []

    def begin():
        future[:] = [saver.begin()]

    def save():
        out["stall"] = timed(begin)
        saver.end(future[0])

    with _quiet() if in_process else contextlib.nullcontext():
        saver.next_step()
        save()
    saver.next_step()
    out["durable"] = timed(save)

    steps = _Steps()

    def work():
        out["steps"], is_over = 0, False
        while not is_over:
            is_over = steps.make(future[0].done())
            out["steps"] += 1

    def save_and_work():
        begin()
        start = time.perf_counter()
        work()
        out["busy_step"] = (time.perf_counter() - start) / out["steps"]
        saver.end(future[0])

    saver.next_step()
    out["busy"] = timed(save_and_work)
    assert saver.step == SAVES
    out["step"] = timed(lambda: [steps.make(True) for _ in range(out["steps"])]) / out["steps"]
    saver.close()
    return out


class DcpAsync(System):
    name = "dcp-async"
    title = "torch DCP, dcp.async_save, memory kept"
    save_operation = "stall"
    loads = False
    in_process = False

    def save_settings(self):
        return [{"stager": "kept", "thread_count": 1}]

    def save(self, workload, directory, setting):
        found = ranks.run(4, _save_thrice, str(directory), workload.config, setting, self.in_process)
        return asynchronous(**{key: max(result[key] for result in found) for key in found[0]})

    def is_saved_right(self, workload, directory):
        return load_on(_step_directory(directory, SAVES), workload, SAVE_LAYOUT).equal


class DcpAsyncProcess(DcpAsync):
    name = "dcp-async-process"
    title = "the same, written by a process beside each rank"
    in_process = True

    def save_settings(self):
        return [{"stager": "kept, shared memory", "thread_count": 1}, {"stager": "kept", "thread_count": 1}]


class DcpAsyncDefault(DcpAsync):
    name = "dcp-async-default"
    title = "torch DCP, dcp.async_save as it is called without options: new memory for each save"

    def save_settings(self):
        return [{"stager": "the writer's", "thread_count": 1}]
