"""The training: a small decoder-only transformer on bytes, the text, and the bytes of each step.

Widths are chosen for the codecs: rows of 132 elements, which are not whole blocks of 128, and rows of 384, which are;
matrices whose last block is short; embeddings of bytes that never occur in the text; norms, which stay F32.
"""

import dataclasses
import hashlib
import pydoc_data.topics

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256
HELD_OUT_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int = 3
    width: int = 132
    heads: int = 3
    inner: int = 384
    context: int = 128


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = nn.RMSNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.attention_out = nn.Linear(shape.width, shape.width, bias=False)
        self.inner_norm = nn.RMSNorm(shape.width)
        self.gate = nn.Linear(shape.width, shape.inner, bias=False)
        self.up = nn.Linear(shape.width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.query_key_value(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        inner = self.inner_norm(x)
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner))


class Transformer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def seeded_model(shape, seed):
    """The model at the beginning of a run; the same on every rank."""
    torch.manual_seed(seed)
    model = Transformer(shape)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02 if parameter.shape[0] == VOCABULARY else parameter.shape[1] ** -0.5)
    return model


class Text:
    """Python's documentation as bytes; its end is held out of training."""

    def __init__(self):
        topics = pydoc_data.topics.topics
        text = "\n".join(topics[name] for name in sorted(topics)).encode()
        self.size_bytes = len(text)
        self.sha256 = hashlib.sha256(text).hexdigest()
        values = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        begin = int(len(values) * (1 - HELD_OUT_SHARE))
        self.training, self.held_out = values[:begin], values[begin:]

    def batch(self, seed, step, sequences, context):
        """Inputs and targets of one step for all ranks together; they depend on seed and step alone."""
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        begins = torch.randint(len(self.training) - context - 1, (sequences,), generator=generator)
        windows = self.training[begins[:, None] + torch.arange(context + 1)]
        return windows[:, :-1], windows[:, 1:]

    def held_out_windows(self, sequences, context):
        """Inputs and targets, evenly spaced over the held-out part; the same for every run."""
        begins = torch.linspace(0, len(self.held_out) - context - 1, sequences).long()
        windows = self.held_out[begins[:, None] + torch.arange(context + 1)]
        return windows[:, :-1], windows[:, 1:]
