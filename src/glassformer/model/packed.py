"""The same model with its weights laid out for translating on a CPU: the same numbers in a fraction of the time.

B sentences, W prefixes of each, N = B * W, S source length, T tokens so far, D model width, H heads, K = D / H, V
vocabulary.

Nothing is learned here and nothing looked at, so that no more is left of each layer than its arithmetic: weights lie
as multiplication reads them fastest, and the factors sqrt(D) and 1 / sqrt(K) are in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.model.attention import MultiHeadAttention
from glassformer.model.decoder import DecoderLayer
from glassformer.model.encoder import EncoderLayer
from glassformer.model.layers import AddNorm, Embedding, LayerNorm
from glassformer.model.operations import OPERATIONS
from glassformer.model.state import Memory
from glassformer.model.transformer import Transformer

__all__ = ["PackedState", "PackedTransformer", "can_pack"]

_Map = Callable[[Tensor], Tensor]

_USUAL: Final = 200  # rows
_ROOM: Final = 16  # places that a decoder's memory has at first
_SPARE: Final = 8  # places that it has for tokens to come when prefixes have moved


def can_pack(model: Transformer) -> bool:
    """Say whether this machine, and this kind of weights, have what packing needs."""
    weight = model.output.weight
    return weight.is_cpu and weight.dtype == torch.float32 and torch._C._has_mkldnn


class _Linear:
    """x W^T + b."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.bias = bias
        n_out, n_in = weight.shape
        # Along its longer rows a matrix is read fastest, and with few rows of x reading it is all the work.
        self.across = weight.t().contiguous() if n_in <= n_out else weight.contiguous().t()

    def __call__(self, x: Tensor) -> Tensor:
        """Map `x` (N, in) to (N, out)."""
        y = torch.mm(x, self.across)  # addmm, which first fills its result with the bias, takes longer
        return y if self.bias is None else y.add_(self.bias)

    def onto(self, x: Tensor, y: Tensor) -> Tensor:
        """Map `x` (N, in) and add it to `y` (N, out)."""
        return self(x).add_(y)


class _Output(_Linear):
    """The output layer, the widest by far: for a batch of the usual size oneDNN computes it fastest."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())

    def __call__(self, x: Tensor) -> Tensor:
        """Map `x` (N, D) to logits (N, V)."""
        if not 1 < x.size(0) <= _USUAL:
            return super().__call__(x)
        logits: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self.packed, self.bias, "none", [], "")
        return logits


class _Norm:
    def __init__(self, norm: LayerNorm) -> None:
        self.gamma, self.beta, self.eps, self.shape = norm.gamma, norm.beta, norm.eps, norm.gamma.shape

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.shape, self.gamma, self.beta, self.eps)


def _same(x: Tensor) -> Tensor:
    return x


def _norms(around: AddNorm) -> tuple[_Map, _Map]:
    """Give what comes before a sublayer, and what comes after its sum."""
    norm = _same if around.norm is None else _Norm(around.norm)
    return (norm, _same) if around.pre else (_same, norm)


class _Attention:
    """One attention's projections; the questions come out scaled."""

    def __init__(self, attention: MultiHeadAttention, of_source: bool) -> None:
        width = attention.projection.in_features

        def scaled(part: Tensor) -> Tensor:
            return torch.cat([part[:width] * attention.factor, part[width:]])

        weight = scaled(attention.projection.weight)
        bias = None if attention.projection.bias is None else scaled(attention.projection.bias)
        if of_source:
            self.query = _Linear(weight[:width], None if bias is None else bias[:width])
            self.memory = _Linear(weight[width:], None if bias is None else bias[width:])
        else:
            self.query_and_memory = _Linear(weight, bias)
        self.output = _Linear(attention.output.weight, attention.output.bias)


class _Layer:
    """What encoder and decoder layers share."""

    def __init__(self, layer: EncoderLayer | DecoderLayer) -> None:
        self.n_heads = layer.self_attention.n_heads
        self.self_attention = _Attention(layer.self_attention, of_source=False)
        self.before_self, self.after_self = _norms(layer.around_self)
        self.hidden = None
        if layer.feed_forward is not None and layer.around_ff is not None:
            network = layer.feed_forward
            self.hidden = _Linear(network.hidden.weight, network.hidden.bias)
            self.output = _Linear(network.output.weight, network.output.bias)
            self.activation = None if network.activation == "relu" else OPERATIONS[network.activation]
            self.before_ff, self.after_ff = _norms(layer.around_ff)

    def feed(self, x: Tensor) -> Tensor:
        """Map `x` (N, D) by the feed-forward network, if there is one."""
        if self.hidden is None:
            return x
        entered = self.before_ff(x)
        hidden = self.hidden(entered)
        active = hidden.relu_() if self.activation is None else self.activation(hidden)
        return self.after_ff(self.output.onto(active, x))


class _EncoderLayer(_Layer):
    def __call__(self, x: Tensor, batch: int, allowed: Tensor | None) -> Tensor:
        """Map `x` (B * S, D)."""
        n_rows, width = x.shape
        parts = self.self_attention.query_and_memory(self.before_self(x))
        parts = parts.view(batch, n_rows // batch, 3, self.n_heads, width // self.n_heads)
        query, keys, values = parts.permute(2, 0, 3, 1, 4).unbind()  # (B, H, S, K)
        context = F.scaled_dot_product_attention(query, keys, values, allowed, scale=1.0)
        joined = context.transpose(1, 2).reshape(n_rows, width)
        return self.feed(self.after_self(self.self_attention.output.onto(joined, x)))


class _DecoderLayer(_Layer):
    def __init__(self, layer: DecoderLayer) -> None:
        super().__init__(layer)
        self.cross_attention = _Attention(layer.cross_attention, of_source=True)
        self.before_cross, self.after_cross = _norms(layer.around_cross)

    def __call__(self, x: Tensor, number: int, room: _Room, source: _Source) -> Tensor:
        """Map the newest position `x` (N, D) of each prefix, and write its keys and values down."""
        n_rows, width = x.shape
        n_heads, size = self.n_heads, width // self.n_heads
        parts = self.self_attention.query_and_memory(self.before_self(x)).view(n_rows, 3, width)
        length = room.write(number, parts)
        query = parts[:, 0].reshape(n_rows * n_heads, 1, size)
        scores = torch.bmm(query, room.keys[number][:, :, :length])  # (N * H, 1, T)
        context = torch.bmm(scores.softmax(2), room.values[number][:, :length])
        x = self.after_self(self.self_attention.output.onto(context.view(n_rows, width), x))

        query = self.cross_attention.query(self.before_cross(x))
        (keys, values), barrier = source.memories[number], source.barrier
        n_beams = n_rows // source.batch
        if n_beams == 1:
            query = query.view(n_rows * n_heads, 1, size)
        else:  # the prefixes of a sentence share its memory: (B * H, W, K)
            query = query.view(source.batch, n_beams, n_heads, size).transpose(1, 2).reshape(-1, n_beams, size)
        scores = torch.bmm(query, keys) if barrier is None else torch.baddbmm(barrier, query, keys)
        context = torch.bmm(scores.softmax(2), values)
        if n_beams > 1:
            context = context.view(source.batch, n_heads, n_beams, size).transpose(1, 2).reshape(n_rows, width)
        x = self.after_cross(self.cross_attention.output.onto(context.view(n_rows, width), x))
        return self.feed(x)


class _Room:
    """What all layers remember of prefixes, with places for tokens to come."""

    def __init__(self, shape: tuple[int, int, int], n_heads: int, places: int) -> None:
        n_layers, n_rows, width = shape
        self.n_heads, self.filled = n_heads, 0
        self.buffer = torch.empty(places, n_layers, 2, n_rows, width)
        heads = self.buffer.view(places, n_layers, 2, n_rows * n_heads, width // n_heads)
        self.keys = [heads[:, layer, 0].permute(1, 2, 0) for layer in range(n_layers)]  # (N * H, K, places)
        self.values = [heads[:, layer, 1].transpose(0, 1) for layer in range(n_layers)]  # (N * H, places, K)

    def write(self, layer: int, parts: Tensor) -> int:
        """Write the keys and values of the projected tokens (N, 3, D) in the first free place; count what is full."""
        self.buffer[self.filled, layer] = parts[:, 1:].transpose(0, 1)
        return self.filled + 1

    def copy(self, length: int, places: int, rows: Tensor | None = None) -> _Room:
        """Give what the first places hold, of all prefixes or of some, with more places."""
        _, n_layers, _, n_rows, width = self.buffer.shape
        room = _Room((n_layers, n_rows if rows is None else rows.size(0), width), self.n_heads, places)
        if rows is None:
            room.buffer[:length] = self.buffer[:length]
        else:
            torch.index_select(self.buffer[:length], 3, rows, out=room.buffer[:length])
        room.filled = length
        return room


class _Source(NamedTuple):
    """The sources, projected once; the prefixes of a sentence share them."""

    batch: int
    memories: tuple[tuple[Tensor, Tensor], ...]  # a layer: keys (B * H, K, S) and values (B * H, S, K)
    barrier: Tensor | None  # (B * H, 1, S) -inf where there is padding

    def keep(self, sentences: Tensor) -> _Source:
        def kept(tensor: Tensor) -> Tensor:
            return tensor.view(self.batch, -1, *tensor.shape[1:]).index_select(0, sentences).flatten(0, 1)

        memories = tuple((kept(keys), kept(values)) for keys, values in self.memories)
        return _Source(sentences.size(0), memories, None if self.barrier is None else kept(self.barrier))


class PackedState(NamedTuple):
    """What a decoder knows between two tokens, as a value; prefix i belongs to sentence i // W."""

    source: _Source
    room: _Room | None  # none before the first token
    length: int  # tokens read so far
    rows: Tensor | None = None  # (N,) of the room, where the prefixes are; None: they are all of it, in order

    def select(self, rows: Tensor) -> PackedState:
        """Keep, repeat or reorder prefixes within their sentences; they move with the next step, all at once."""
        assert self.room is not None, "a token is read before prefixes part"
        return self._replace(rows=rows if self.rows is None else self.rows.index_select(0, rows))

    def keep(self, sentences: Tensor) -> PackedState:
        """Go on with some sentences only."""
        kept = self._replace(source=self.source.keep(sentences))
        if self.room is None:
            return kept
        n_rows = self.room.buffer.size(3) if self.rows is None else self.rows.size(0)
        width = n_rows // self.source.batch
        if width == 1:
            return kept.select(sentences)
        return kept.select((sentences.unsqueeze(1) * width + torch.arange(width)).flatten())

    def with_room(self, shape: tuple[int, int, int], n_heads: int) -> _Room:
        """Give a room in which the next token can be written, and in which nobody else has written it."""
        if self.room is None:
            return _Room(shape, n_heads, _ROOM)
        if self.rows is not None:
            return self.room.copy(self.length, self.length + _SPARE, self.rows)
        if self.room.filled == self.length < self.room.buffer.size(0):
            return self.room
        return self.room.copy(self.length, 2 * (self.length + 1))


class _Embedding(NamedTuple):
    """Rows times sqrt(D), and positions."""

    table: Tensor  # (V, D)
    positions: Tensor | None  # (max_positions, D)

    @classmethod
    def of(cls, embedding: Embedding) -> _Embedding:
        positions = None if embedding.positions is None else embedding.positions.table
        return cls(embedding.table * embedding.factor, positions)

    def __call__(self, ids: Tensor, start: int) -> Tensor:
        """Embed `ids` (B, T) as (B, T, D)."""
        x = torch.embedding(self.table, ids)
        if self.positions is None:
            return x
        end = start + ids.size(1)
        if end > len(self.positions):
            raise ValueError(f"position {end} is past the model's limit: max_positions={len(self.positions)}")
        return x + self.positions[start:end]


class PackedTransformer:
    """A Transformer that only translates; when the model's weights have changed, another must be made."""

    @torch.inference_mode()
    def __init__(self, model: Transformer) -> None:
        """Pack the weights of `model`, which `can_pack` says can be."""
        self.config, self.start_id = model.config, model.start_id
        self.src_embedding = _Embedding.of(model.src_embedding)
        shared = model.config.tie in ("all", "embeddings") and model.config.positions != "learned"
        self.tgt_embedding = self.src_embedding if shared else _Embedding.of(model.tgt_embedding)
        self.encoder = [_EncoderLayer(layer) for layer in model.encoder.layers if isinstance(layer, EncoderLayer)]
        self.decoder = [_DecoderLayer(layer) for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]
        norms = (model.encoder.norm, model.decoder.norm)
        self.end_of_encoder, self.end_of_decoder = (_same if norm is None else _Norm(norm) for norm in norms)
        self.output = _Output(model.output.weight, model.output.bias)

    @torch.inference_mode()
    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> Memory:
        """Encode sources (B, S), of which those with `src_mask` (B, S) True are tokens; None: all."""
        allowed = None if src_mask is None else src_mask[:, None, None, :]  # (B, 1, 1, S)
        x = self.src_embedding(src, 0).flatten(0, 1)  # (B * S, D)
        for layer in self.encoder:
            x = layer(x, src.size(0), allowed)
        return Memory(self.end_of_encoder(x).view(*src.shape, -1), allowed)

    @torch.inference_mode()
    def start(self, memory: Memory) -> PackedState:
        """Make the state of a decoder that has read no token yet."""
        batch, length, width = memory.states.shape
        n_heads = self.config.n_heads
        states = memory.states.flatten(0, 1)
        memories = []
        for layer in self.decoder:
            parts = layer.cross_attention.memory(states).view(batch, length, 2, n_heads, width // n_heads)
            keys, values = parts[:, :, 0].permute(0, 2, 3, 1), parts[:, :, 1].transpose(1, 2)
            memories.append((keys.flatten(0, 1).contiguous(), values.flatten(0, 1).contiguous()))
        barrier = None
        if memory.allowed is not None:
            barrier = (
                states.new_zeros(batch, n_heads, 1, length).masked_fill_(~memory.allowed, -torch.inf).flatten(0, 1)
            )
        return PackedState(_Source(batch, tuple(memories), barrier), None, 0)

    @torch.inference_mode()
    def step(self, tokens: Tensor, state: PackedState) -> tuple[Tensor, PackedState]:
        """Read the next token (N, 1) of each prefix and give the logits (N, 1, V) after it."""
        n_rows = tokens.size(0)
        source = state.source
        room = state.with_room((len(self.decoder), n_rows, self.config.d_model), self.config.n_heads)
        x = self.tgt_embedding(tokens, state.length).squeeze(1)  # (N, D)
        for number, layer in enumerate(self.decoder):
            x = layer(x, number, room, source)
        room.filled = state.length + 1
        logits = self.output(self.end_of_decoder(x))
        return logits.unsqueeze(1), PackedState(source, room, room.filled)
