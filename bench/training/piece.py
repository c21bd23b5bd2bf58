"""One piece of a training run on R ranks: from a seed, or from a directory of plain safetensors, to another directory.

FSDP2 shards weights and moments. A rank that resumes gets its state from its rows of the files alone: its weights are
NaN before it reads them. The facts that a rank returns show the state that it worked with.
"""

import dataclasses
import hashlib
import math
import os
import time

import safetensors.torch
import torch
import torch.distributed
from safetensors import safe_open
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional

from model import Shape, Text, VOCABULARY, seeded_model

MOMENTS = ("exp_avg", "exp_avg_sq")
STEP = "step"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of all runs."""
    steps: int = 330
    batch_sequences: int = 12
    held_out_sequences: int = 96
    warm_up_steps: int = 30
    learning_rate: float = 2e-3
    last_share: float = 0.1  # of the learning rate, at the end of the cosine
    betas: tuple = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    shape: Shape = Shape()

    def learning_rate_at(self, step):
        if step < self.warm_up_steps:
            return self.learning_rate * (step + 1) / self.warm_up_steps
        done = (step - self.warm_up_steps) / max(1, self.steps - self.warm_up_steps)
        cosine = (1 + math.cos(math.pi * done)) / 2
        return self.learning_rate * (self.last_share + (1 - self.last_share) * cosine)


@dataclasses.dataclass(frozen=True)
class Piece:
    seed: int
    begin: int
    end: int
    evaluate_at: tuple     # numbers of steps done
    source: str = None     # directory to resume from; None: from the seed
    destination: str = None


def rows_of(count, rank, size):
    """Rows [begin, end) of a dimension that FSDP2 gives to a rank."""
    chunk = -(-count // size)
    return min(rank * chunk, count), min((rank + 1) * chunk, count)


def optimizer_of(model, recipe):
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": recipe.weight_decay},
                              {"params": others, "weight_decay": 0.0}],
                             lr=recipe.learning_rate, betas=recipe.betas, eps=recipe.eps)


def load(model, optimizer, directory, rank, size):
    """Reads the state of this rank's rows from the files; returns the step after which it was saved."""
    with (safe_open(f"{directory}/model.safetensors", "pt") as weights,
          safe_open(f"{directory}/optimizer.safetensors", "pt") as moments, torch.no_grad()):
        step = int(moments.get_tensor(STEP))
        for name, parameter in model.named_parameters():
            local = parameter.to_local()
            begin, end = rows_of(parameter.shape[0], rank, size)
            if local.shape[0] != end - begin:
                raise RuntimeError(f"{name}: rank {rank} of {size} has {local.shape[0]} rows, expected {end - begin}")
            local.fill_(math.nan)
            local.copy_(weights.get_slice(name)[begin:end])
            state = {"step": torch.tensor(float(step))}
            for moment in MOMENTS:
                mine = moments.get_slice(f"{name}.{moment}")[begin:end].contiguous()
                state[moment] = DTensor.from_local(mine, parameter.device_mesh, parameter.placements, run_check=False,
                                                   shape=parameter.shape, stride=parameter.stride())
            optimizer.state[parameter] = state
            for read in (local, *(state[moment].to_local() for moment in MOMENTS)):
                if read.dtype != torch.float32 or not torch.isfinite(read).all():
                    raise RuntimeError(f"{directory}: {name} is not finite F32")
    return step


def gathered_state(model, optimizer):
    """(weights, moments) by name, as whole tensors. Collective."""
    weights, moments = {}, {}
    for name, parameter in model.named_parameters():
        weights[name] = parameter.detach().full_tensor()
        for moment in MOMENTS:
            moments[f"{name}.{moment}"] = optimizer.state[parameter][moment].full_tensor()
    return weights, moments


def save(model, optimizer, directory, step, rank):
    """Collective; rank 0 writes the files."""
    weights, moments = gathered_state(model, optimizer)
    if rank == 0:
        moments[STEP] = torch.tensor(step, dtype=torch.int64)
        os.makedirs(directory)
        safetensors.torch.save_file(weights, f"{directory}/model.safetensors", {"format": "pt"})
        safetensors.torch.save_file(moments, f"{directory}/optimizer.safetensors", {"format": "pt"})
    torch.distributed.barrier()


def digests_of(tensors):
    return {name: hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}


def mean_loss(model, windows):
    inputs, targets = windows
    return functional.cross_entropy(model(inputs).reshape(-1, VOCABULARY), targets.reshape(-1))


def share_of(windows, rank, size):
    inputs, targets = windows
    if len(inputs) % size:
        raise RuntimeError(f"{len(inputs)} sequences do not divide among {size} ranks")
    mine = slice(len(inputs) // size * rank, len(inputs) // size * (rank + 1))
    return inputs[mine], targets[mine]


def held_out_loss(model, windows):
    """The mean over all ranks. Collective."""
    with torch.no_grad():
        loss = mean_loss(model, windows)
    torch.distributed.all_reduce(loss)
    return float(loss) / torch.distributed.get_world_size()


def train_step(model, optimizer, windows, recipe, step):
    """One step; returns the mean loss of this rank's sequences."""
    for group in optimizer.param_groups:
        group["lr"] = recipe.learning_rate_at(step)
    loss = mean_loss(model, windows)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def run_piece(rank, size, recipe, piece):
    """Collective over the ranks of the process group."""
    begun = time.monotonic()
    text, shape = Text(), recipe.shape
    mesh = init_device_mesh("cpu", (size,))
    model = seeded_model(shape, piece.seed)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=True)  # the saved state is that of the shards
    optimizer = optimizer_of(model, recipe)
    resumed = None
    if piece.source is not None:
        found = load(model, optimizer, piece.source, rank, size)
        if found != piece.begin:
            raise RuntimeError(f"{piece.source} was saved after step {found}, expected {piece.begin}")
        resumed = {name: digests_of(tensors)
                   for name, tensors in zip(("weights", "moments"), gathered_state(model, optimizer))}
    held_out = share_of(text.held_out_windows(recipe.held_out_sequences, shape.context), rank, size)
    losses, held_out_losses = [], {}
    for step in range(piece.begin, piece.end):
        windows = share_of(text.batch(piece.seed, step, recipe.batch_sequences, shape.context), rank, size)
        losses.append(train_step(model, optimizer, windows, recipe, step))
        if step + 1 in piece.evaluate_at:
            held_out_losses[step + 1] = held_out_loss(model, held_out)
    losses = torch.stack(losses)
    torch.distributed.all_reduce(losses)
    if piece.destination is not None:
        save(model, optimizer, piece.destination, piece.end, rank)
    return {
        "ranks": torch.distributed.get_world_size(),
        "process": os.getpid(),
        "moment_elements_held": sum(state[moment].to_local().numel()
                                    for state in optimizer.state.values() for moment in MOMENTS),
        "moment_elements": sum(state[moment].numel() for state in optimizer.state.values() for moment in MOMENTS),
        "losses": (losses / size).tolist(),
        "held_out": held_out_losses,
        "resumed": resumed,
        "seconds": time.monotonic() - begun,
    }


