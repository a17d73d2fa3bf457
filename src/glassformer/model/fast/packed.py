"""The same model with its weights packed for translation on a CPU: the same numbers in a fraction of the time.

B sentences, W prefixes of each, N = B * W, S source length, C columns so far, D model width, H heads, K = D / H, V
vocabulary.

The prefixes of a sentence store what they have read in shared columns, W more with each token, and each sees the
columns of its own past: prefixes diverge without copying a number.

Nothing is trained or traced here, so only the arithmetic of each layer is left: weights are laid out for fast
multiplication, and include the factors sqrt(D) and 1 / sqrt(K).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.model.attention import MultiHeadAttention
from glassformer.model.decoder import DecoderLayer
from glassformer.model.encoder import EncoderLayer
from glassformer.model.layers import AddNorm, LayerNorm
from glassformer.model.operations import OPERATIONS, turn_pairs
from glassformer.model.positions import Positions, Rotary
from glassformer.model.state import Memory
from glassformer.model.transformer import Transformer

_Map = Callable[[Tensor], Tensor]

_MOST_PARTS: Final = 4  # of a matrix, that threads read at the same time
_ROOM: Final = 16  # columns that a decoder's memory has at first


def can_pack(model: Transformer) -> bool:
    """Return whether this build of torch and these weights allow packing."""
    weight = model.output.weight
    return weight.is_cpu and weight.dtype == torch.float32 and torch._C._has_mkldnn


class _Linear:
    """x W^T + b by oneDNN, which fuses what follows: an activation or a sum."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.bias = bias
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())

    def __call__(self, x: Tensor, then: str = "none") -> Tensor:
        """Map `x` (N, in) to (N, out), followed by `then`, which is "none" or "relu"."""
        mapped: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self.packed, self.bias, then, [], "")
        return mapped

    def onto(self, x: Tensor, y: Tensor) -> Tensor:
        """Map `x` (N, in) and add it to `y` (N, out)."""
        sums: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, y, self.packed, self.bias, "add")
        return sums


class _StepLinear(_Linear):
    """The same for a decoder, whose x may be a single row: reading W then dominates, and threads share it."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        n_out, n_in = weight.shape
        self.parts = math.gcd(n_out, 1 << min(torch.get_num_threads(), _MOST_PARTS).bit_length() - 1)
        by_part = weight.reshape(self.parts, -1, n_in).transpose(1, 2)  # (P, in, out / P)
        # Along its longer rows a matrix is read fastest.
        self.across = by_part.contiguous() if n_in <= by_part.size(2) else by_part
        self.bias_by_part = None if bias is None else bias.view(self.parts, 1, -1)

    def __call__(self, x: Tensor, then: str = "none") -> Tensor:
        if x.size(0) > 1:
            return super().__call__(x, then)
        shared = x.expand(self.parts, 1, -1)
        if self.bias_by_part is None:
            row = torch.bmm(shared, self.across)
        else:
            row = torch.baddbmm(self.bias_by_part, shared, self.across)
        return (row.relu_() if then == "relu" else row).view(1, -1)

    def onto(self, x: Tensor, y: Tensor) -> Tensor:
        if x.size(0) > 1:
            return super().onto(x, y)
        row = torch.baddbmm(y.view(self.parts, 1, -1), x.expand(self.parts, 1, -1), self.across).view(1, -1)
        return row if self.bias is None else row.add_(self.bias)


def _same(x: Tensor) -> Tensor:
    return x


def _norm(norm: LayerNorm | None) -> _Map:
    if norm is None:
        return _same
    shape = norm.gamma.shape
    return partial(torch.layer_norm, normalized_shape=shape, weight=norm.gamma, bias=norm.beta, eps=norm.eps)


def _norms(around: AddNorm) -> tuple[_Map, _Map]:
    """Return what comes before a sublayer, and what comes after its sum."""
    norm = _norm(around.norm)
    return (norm, _same) if around.pre else (_same, norm)


def _scaled(attention: MultiHeadAttention) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of the projection to queries, already scaled, keys and values."""
    width, projection = attention.projection.in_features, attention.projection

    def scaled(part: Tensor) -> Tensor:
        return torch.cat([part[:width] * attention.factor, part[width:]])

    return scaled(projection.weight), None if projection.bias is None else scaled(projection.bias)


class _CrossAttention:
    """The projections of a decoder's attention to the source."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        (weight, bias), width, n_heads = _scaled(attention), attention.projection.in_features, attention.n_heads
        self.query = _StepLinear(weight[:width], None if bias is None else bias[:width])
        self.memory = _Linear(weight[width:], None if bias is None else bias[width:])
        self.output = _StepLinear(attention.output.weight, attention.output.bias)
        self.into = weight[:width].view(n_heads, -1, width).transpose(1, 2).contiguous()  # (H, D, K)
        self.out_of = attention.output.weight.t().reshape(n_heads, -1, width)  # (H, K, D)


class _Layer:
    """The parts that encoder and decoder layers share."""

    def __init__(self, layer: EncoderLayer | DecoderLayer, linear: type[_Linear]) -> None:
        attention = layer.self_attention
        self.n_heads = attention.n_heads
        self.size = attention.output.in_features // self.n_heads
        self.self_parts = linear(*_scaled(attention))
        self.self_output = linear(attention.output.weight, attention.output.bias)
        self.before_self, self.after_self = _norms(layer.around_self)
        self.hidden = None
        if layer.feed_forward is not None and layer.around_ff is not None:
            network = layer.feed_forward
            self.hidden = linear(network.hidden.weight, network.hidden.bias)
            self.output = linear(network.output.weight, network.output.bias)
            self.activation = None if network.activation == "relu" else OPERATIONS[network.activation]
            self.before_ff, self.after_ff = _norms(layer.around_ff)

    def feed(self, x: Tensor) -> Tensor:
        """Map `x` (N, D) by the feed-forward network, if there is one."""
        if self.hidden is None:
            return x
        entered = self.before_ff(x)
        active = self.hidden(entered, "relu") if self.activation is None else self.activation(self.hidden(entered))
        return self.after_ff(self.output.onto(active, x))


class _EncoderLayer(_Layer):
    def __init__(self, layer: EncoderLayer) -> None:
        super().__init__(layer, _Linear)

    def __call__(self, x: Tensor, batch: int, allowed: Tensor | None, turns: Tensor | None) -> Tensor:
        """Map `x` (B * S, D); `turns` (S, K) rotate queries and keys."""
        n_rows, width = x.shape
        parts = self.self_parts(self.before_self(x))
        parts = parts.view(batch, n_rows // batch, 3, self.n_heads, width // self.n_heads)
        query, keys, values = parts.permute(2, 0, 3, 1, 4).unbind()  # (B, H, S, K)
        if turns is not None:
            query, keys = turn_pairs(query, turns), turn_pairs(keys, turns)
        context = F.scaled_dot_product_attention(query, keys, values, allowed, scale=1.0)
        joined = context.transpose(1, 2).reshape(n_rows, width)
        return self.feed(self.after_self(self.self_output.onto(joined, x)))


class _DecoderLayer(_Layer):
    def __init__(self, layer: DecoderLayer) -> None:
        super().__init__(layer, _StepLinear)
        self.cross_attention = _CrossAttention(layer.cross_attention)
        self.before_cross, self.after_cross = _norms(layer.around_cross)

    def __call__(
        self,
        x: Tensor,
        columns: _Columns,
        past: Tensor | None,
        source: _Source,
        number: int,
        turns: Tensor | None,
    ) -> Tensor:
        """Map the newest position `x` (N, D) of each prefix, rotated by `turns` (1, K).

        `past` (B * H, W, C) masks the columns of other prefixes.
        """
        batch, n_heads = source.batch, self.n_heads
        parts = self.self_parts(self.before_self(x)).view(batch, -1, 3, n_heads, self.size)
        if turns is not None:
            parts[:, :, :2] = turn_pairs(parts[:, :, :2], turns)
        columns.new.copy_(parts.narrow(2, 1, 2).permute(2, 1, 0, 3, 4))
        context = _attend(_by_head(parts.select(2, 0)), columns.keys, columns.values, past)
        x = self.after_self(self.self_output.onto(_by_prefix(context, batch, n_heads), x))

        entered, memory = self.before_cross(x), source.memories[number]
        if isinstance(memory, _Absorbed):
            x = memory.onto(entered, x, n_heads)
        else:
            query = _by_head(self.cross_attention.query(entered).view(batch, -1, n_heads, self.size))
            context = _attend(query, memory.keys, memory.values, source.barrier)
            x = self.cross_attention.output.onto(_by_prefix(context, batch, n_heads), x)
        return self.feed(self.after_cross(x))


def _by_head(x: Tensor) -> Tensor:
    """Lay (B, W, H, K) out as (B * H, W, K)."""
    batch, n_prefixes, n_heads, size = x.shape
    if n_prefixes > 1:
        x = x.transpose(1, 2)
    return x.reshape(batch * n_heads, n_prefixes, size)


def _by_prefix(context: Tensor, batch: int, n_heads: int) -> Tensor:
    """Lay (B * H, W, K) out as (N, D)."""
    n_prefixes = context.size(1)
    if n_prefixes == 1:
        return context.view(batch, -1)
    return context.view(batch, n_heads, n_prefixes, -1).transpose(1, 2).reshape(batch * n_prefixes, -1)


def _attend(query: Tensor, keys: Tensor, values: Tensor, barrier: Tensor | None) -> Tensor:
    """Read `values` (B * H, C, K) with queries (B * H, W, K), except where `barrier` is -inf."""
    scores = torch.bmm(query, keys) if barrier is None else torch.baddbmm(barrier, query, keys)
    return torch.bmm(scores.softmax(2), values)


class _Columns(NamedTuple):
    """The keys and values of one layer for the prefixes of each sentence."""

    new: Tensor  # (2, W, B, H, K) keys and values of the newest tokens, to be written
    keys: Tensor  # (B * H, K, C)
    values: Tensor  # (B * H, C, K)


class _Room:
    """The keys and values of all layers for the prefixes of each sentence, with spare columns."""

    def __init__(self, buffer: Tensor, filled: int) -> None:
        self.buffer, self.filled = buffer, filled  # (layers, 2, columns, B, H, K)
        self.keys, self.values = buffer.flatten(3, 4).unbind(1)  # (layers, columns, B * H, K)

    def open(self, width: int) -> list[_Columns]:
        """Return for each layer the next `width` columns, still empty, and all columns up to these."""
        start, self.filled = self.filled, self.filled + width
        new = self.buffer.narrow(2, start, width).unbind()
        keys = self.keys.narrow(1, 0, self.filled).permute(0, 2, 3, 1).unbind()
        values = self.values.narrow(1, 0, self.filled).transpose(1, 2).unbind()
        return [_Columns(*layer) for layer in zip(new, keys, values, strict=True)]

    def copy(self, columns: int, sentences: Tensor | None = None) -> _Room:
        """Return a copy of the first columns of all sentences, or of some, with as many spare ones."""
        n_layers, _, _, batch, n_heads, size = self.buffer.shape
        places = 2 * columns + _ROOM
        room = _Room(
            self.buffer.new_empty(n_layers, 2, places, batch if sentences is None else len(sentences), n_heads, size),
            columns,
        )
        filled = self.buffer[:, :, :columns]
        if sentences is None:
            room.buffer[:, :, :columns] = filled
        else:
            torch.index_select(filled, 3, sentences, out=room.buffer[:, :, :columns])
        return room


class _Memory(NamedTuple):
    """The sources as projected for one layer; the prefixes of a sentence share it."""

    keys: Tensor  # (B * H, K, S)
    values: Tensor  # (B * H, S, K)

    def keep(self, sentences: Tensor, batch: int) -> _Memory:
        return _Memory(*(_keep(part, sentences, batch) for part in self))


class _Absorbed(NamedTuple):
    """The same for one short source, multiplied by the query and output projections: less to read per token."""

    keys: Tensor  # (D, H * S)
    bias: Tensor  # (H * S,)
    values: Tensor  # (H * S, D)

    @classmethod
    def of(cls, memory: _Memory, attention: _CrossAttention) -> _Absorbed:
        (n_heads, size, _), query, output = memory.keys.shape, attention.query, attention.output
        keys = torch.bmm(attention.into, memory.keys).transpose(0, 1).flatten(1)
        values = torch.bmm(memory.values, attention.out_of).flatten(0, 1)
        if query.bias is None or output.bias is None:
            return cls(keys, keys.new_zeros(()), values)
        bias = torch.bmm(query.bias.view(n_heads, 1, size), memory.keys).flatten()
        return cls(keys, bias, values.add_(output.bias, alpha=1 / n_heads))  # a head's weights sum to 1

    def onto(self, entered: Tensor, x: Tensor, n_heads: int) -> Tensor:
        """Add what `entered` (W, D) reads from the source to `x` (W, D)."""
        scores = torch.addmm(self.bias, entered, self.keys)
        weights = scores.view(x.size(0) * n_heads, -1).softmax(1)
        return torch.addmm(x, weights.view(x.size(0), -1), self.values)


class _Source(NamedTuple):
    """The sources as all layers see them."""

    batch: int
    memories: tuple[_Memory | _Absorbed, ...]
    barrier: Tensor | None  # (B * H, 1, S) -inf where there is padding

    def keep(self, sentences: Tensor) -> _Source:
        if self.batch == 1:
            return self
        memories = tuple(memory.keep(sentences, self.batch) for memory in self.memories if isinstance(memory, _Memory))
        barrier = None if self.barrier is None else _keep(self.barrier, sentences, self.batch)
        return _Source(sentences.size(0), memories, barrier)


def _keep(rows: Tensor, sentences: Tensor, batch: int) -> Tensor:
    """Keep the rows of some of the sentences, which all have the same number of rows."""
    return rows.view(batch, -1, *rows.shape[1:]).index_select(0, sentences).flatten(0, 1)


class PackedState(NamedTuple):
    """The state of a decoder between two tokens, as a value; prefix i belongs to sentence i // W."""

    source: _Source
    room: _Room | None  # None before the first token
    length: int  # tokens read so far
    columns: int  # used in the room
    past: Tensor | None = None  # (N, C) -inf where a column is not of a prefix's own past; None if each sees all
    sentences: Tensor | None = None  # (B,) of the room that are kept; None if all are

    def select(self, rows: Tensor) -> PackedState:
        """Keep, repeat or reorder prefixes within their sentences."""
        assert self.room is not None, "a token is read before prefixes diverge"
        if self.past is None and rows.size(0) == self.source.batch:
            return self
        past = torch.zeros(self.source.batch, self.columns) if self.past is None else self.past
        return self._replace(past=past.index_select(0, rows))

    def keep(self, sentences: Tensor) -> PackedState:
        """Keep some sentences only; the room drops the rest with the next step."""
        past = None if self.past is None else _keep(self.past, sentences, self.source.batch)
        kept = sentences if self.sentences is None else self.sentences.index_select(0, sentences)
        return self._replace(source=self.source.keep(sentences), past=past, sentences=kept)

    def next_room(self, n_layers: int, n_rows: int, n_heads: int, size: int) -> _Room:
        """Return a room with free columns for the next tokens, which no other state has filled."""
        batch, room = self.source.batch, self.room
        if room is None:
            return _Room(torch.empty(n_layers, 2, n_rows // batch * _ROOM, batch, n_heads, size), 0)
        if self.sentences is not None and batch < room.buffer.size(3):
            room = room.copy(self.columns, self.sentences)
        has_place = self.columns + n_rows // batch <= room.buffer.size(2)
        return room if has_place and room.filled == self.columns else room.copy(self.columns)

    def next_past(self, n_rows: int) -> Tensor | None:
        """Return `past` extended by the newest columns (N, C + W), of which each prefix sees its own."""
        width = n_rows // self.source.batch
        if self.past is None and width == 1:
            return None
        past = torch.zeros(n_rows, self.columns) if self.past is None else self.past
        newest = torch.full((width, width), -torch.inf).fill_diagonal_(0.0).repeat(self.source.batch, 1)
        return torch.cat([past, newest], dim=1)


class _Embedding(NamedTuple):
    """Rows times sqrt(D), and positions."""

    table: Tensor  # (V, D)
    positions: Positions | None

    def __call__(self, ids: Tensor, start: int) -> Tensor:
        """Embed `ids` (B, T) as (B, T, D)."""
        x = torch.embedding(self.table, ids)
        return x if self.positions is None else x + self.positions.rows(start, ids.size(1))


class PackedTransformer:
    """A Transformer that only translates; if the model's weights change, it must be made again."""

    @torch.inference_mode()
    def __init__(self, model: Transformer) -> None:
        """Pack the weights of `model`; `can_pack` must be true of it."""
        self.config, self.start_id = model.config, model.start_id
        src, tgt = model.src_embedding, model.tgt_embedding
        self.src_embedding = _Embedding(src.table * src.factor, src.positions)
        shared = model.config.tie in ("all", "embeddings") and model.config.positions != "learned"
        self.tgt_embedding = self.src_embedding if shared else _Embedding(tgt.table * tgt.factor, tgt.positions)
        self.rotary = Rotary(model.config) if model.config.positions == "rotary" else None
        self.encoder = [_EncoderLayer(layer) for layer in model.encoder.layers if isinstance(layer, EncoderLayer)]
        self.decoder = [_DecoderLayer(layer) for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]
        self.end_of_encoder, self.end_of_decoder = _norm(model.encoder.norm), _norm(model.decoder.norm)
        self.output = _StepLinear(model.output.weight, model.output.bias)

    @torch.inference_mode()
    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> Memory:
        """Encode sources (B, S); `src_mask` (B, S) is True for tokens, None if nothing is padded."""
        allowed = None if src_mask is None else src_mask[:, None, None, :]  # (B, 1, 1, S)
        x = self.src_embedding(src, 0).flatten(0, 1)  # (B * S, D)
        turns = None if self.rotary is None else self.rotary.rows(0, src.size(1))
        for layer in self.encoder:
            x = layer(x, src.size(0), allowed, turns)
        return Memory(self.end_of_encoder(x).view(*src.shape, -1), allowed)

    @torch.inference_mode()
    def start(self, memory: Memory) -> PackedState:
        """Return the state of a decoder that has read no token yet."""
        batch, length, width = memory.states.shape
        n_heads = self.config.n_heads
        states = memory.states.flatten(0, 1)
        memories = list[_Memory | _Absorbed]()
        for layer in self.decoder:
            parts = layer.cross_attention.memory(states).view(batch, length, 2, n_heads, width // n_heads)
            keys, values = parts[:, :, 0].permute(0, 2, 3, 1), parts[:, :, 1].transpose(1, 2)
            memory_of = _Memory(keys.flatten(0, 1).contiguous(), values.flatten(0, 1).contiguous())
            is_short = batch == 1 and memory.allowed is None and n_heads * length < width + length
            memories.append(_Absorbed.of(memory_of, layer.cross_attention) if is_short else memory_of)
        barrier = None
        if memory.allowed is not None:
            barrier = (
                states.new_zeros(batch, n_heads, 1, length).masked_fill_(~memory.allowed, -torch.inf).flatten(0, 1)
            )
        return PackedState(_Source(batch, tuple(memories), barrier), None, 0, 0)

    @torch.inference_mode()
    def step(self, tokens: Tensor, state: PackedState) -> tuple[Tensor, PackedState]:
        """Read the next token (N, 1) of each prefix and return the logits (N, 1, V) after it."""
        n_rows, n_heads, source = tokens.size(0), self.config.n_heads, state.source
        room = state.next_room(len(self.decoder), n_rows, n_heads, self.config.d_model // n_heads)
        columns = room.open(n_rows // source.batch)
        past = state.next_past(n_rows)
        seen = None if past is None else _over_heads(past, source.batch, n_heads)
        x = self.tgt_embedding(tokens, state.length).squeeze(1)  # (N, D)
        turns = None if self.rotary is None else self.rotary.rows(state.length, 1)
        for number, layer in enumerate(self.decoder):
            x = layer(x, columns[number], seen, source, number, turns)
        logits = self.output(self.end_of_decoder(x))
        return logits.unsqueeze(1), PackedState(source, room, state.length + 1, room.filled, past)


def _over_heads(past: Tensor, batch: int, n_heads: int) -> Tensor:
    """Repeat the mask of prefixes (N, C) for each head (B * H, W, C)."""
    return past.view(batch, 1, -1, past.size(1)).expand(-1, n_heads, -1, -1).flatten(0, 1)
