"""Ranks of the Python peers: N processes with torch.distributed on gloo, forked from a server that has imported torch.

Each measurement gets fresh processes, like a training job: no peer runs, holds memory or warms caches while another one
is measured.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
import time
import traceback

LIMIT_S = 1800
# Includes everything that torch imports late, so that no clock contains imports.
PRELOADED = ["torch", "numpy", "numpy.random", "safetensors.torch", "torch._dynamo", "torch.distributed.checkpoint",
             "torch.distributed.tensor", "torch.distributed.checkpoint.hf_storage", "torch.utils.serialization.config",
             "torch.distributed.checkpoint._async_process_executor", "held"]


def _context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _rank_main(function, rank, size, store, arguments, pipe):
    os.setsid()
    try:
        import torch
        import torch.distributed
        torch.set_num_threads(1)
        torch.distributed.init_process_group("cpu:gloo", init_method=f"file://{store}", rank=rank, world_size=size)
        result = function(rank, size, *arguments)
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
        pipe.send((True, result))
    except BaseException:
        pipe.send((False, f"rank {rank} of {size}: {traceback.format_exc()}"))


def run(size, function, *arguments):
    """Runs function(rank, size, *arguments) on `size` ranks. Returns the results by rank; the first failure ends all
    ranks."""
    context = _context()
    with tempfile.TemporaryDirectory(prefix="cairn-peers-store-") as folder:
        store = os.path.join(folder, "store")
        pipes, processes = [], []
        try:
            for rank in range(size):
                mine, theirs = context.Pipe(duplex=False)
                # Not daemonic: daemons may not start processes, which an asynchronous save of DCP does.
                process = context.Process(target=_rank_main, args=(function, rank, size, store, arguments, theirs))
                process.start()
                theirs.close()
                pipes.append(mine)
                processes.append(process)
            results = _collect(pipes)
            for process in processes:
                process.join(timeout=10)
            return results
        finally:
            for process in processes:
                if process.is_alive():
                    _kill(process)
                process.join()


def _kill(process):
    """Kills the process and the processes that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # it has not called setsid yet
        process.kill()


def _collect(pipes):
    results, waiting = [None] * len(pipes), dict(enumerate(pipes))
    deadline = time.monotonic() + LIMIT_S
    while waiting:
        ready = multiprocessing.connection.wait(list(waiting.values()), timeout=max(0, deadline - time.monotonic()))
        if not ready:
            raise RuntimeError(f"ranks {sorted(waiting)} gave no result within {LIMIT_S} s")
        for rank in [rank for rank, pipe in waiting.items() if pipe in ready]:
            try:
                good, value = waiting.pop(rank).recv()
            except EOFError:
                raise RuntimeError(f"rank {rank} ended without a result") from None
            if not good:
                raise RuntimeError(value)
            results[rank] = value
    return results


def timed(function):
    """Seconds of this rank from a barrier to the end of the call."""
    import torch.distributed
    torch.distributed.barrier()
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
