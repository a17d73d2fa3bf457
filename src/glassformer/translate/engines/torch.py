"""Translation by our own models, in batches of similar length; the batch never changes a translation.

B sentences, W beam width, N = B * W prefixes, S source length, T target length, V vocabulary.

Floating point sums depend on the shape of a batch and on the threads that share the work, so near ties could go either
way. A search reports how close it came to another outcome; a sentence for which that is less than `tolerance` is
searched again, alone, without padding and with all threads. So every translation is the one that it gets alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import compress
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.data.batches import collate, length_batches
from glassformer.errors import ConfigError
from glassformer.model.fast.packed import PackedTransformer, can_pack
from glassformer.model.scope import BLIND, Scope
from glassformer.model.state import DecoderState, Memory, Stepper
from glassformer.model.trace import Watcher
from glassformer.model.transformer import Transformer
from glassformer.search.ensemble import States, ensemble, mean_log_probs
from glassformer.search.hypotheses import Hypotheses, S
from glassformer.search.rules import make_rules
from glassformer.search.search import needs_attention, refuses, search
from glassformer.store.folder import AttentionHead
from glassformer.text.vocab import EOS, PAD
from glassformer.translate.alignment import alignment_layer, alignment_weights
from glassformer.translate.engines.engine import IdHypothesis, Request, Source

# In log-probability and float32. Between batch shapes the sum over a translation moved by up to 1.5e-6 per token (4 + 4
# layers, d_model 128, up to 60 tokens; packed, and with one thread or two, 0.8e-6), so a gap of two by up to 1e-4 over
# 32 tokens.
TOLERANCE: Final = 1e-4
_TOLERATED: Final = 32  # tokens; the tolerance grows with the length, from a quarter
MAX_TOKENS: Final = 8192
_SHARED: Final = 8  # sentences per thread, from which batches are searched in parallel
_MAX_BATCH: Final = 64  # sentences on a CPU: more do not fit its caches


class TorchEngine:
    """Our own models; several, which must share a vocabulary, form an ensemble."""

    name = "torch"
    is_thread_safe = False

    def __init__(
        self,
        models: Sequence[Transformer],
        alignment: AttentionHead | None = None,
        max_tokens: int = MAX_TOKENS,
        tolerance: float = TOLERANCE,
    ) -> None:
        """Take models, the alignment head of the first, and the limit of a batch: padded tokens, of all beams."""
        self.models, self.alignment, self.max_tokens = tuple(models), alignment, max_tokens
        sizes = sorted({(model.config.src_vocab, model.config.tgt_vocab) for model in self.models})
        if len(sizes) != 1:
            raise ConfigError(f"the models of an ensemble must share their vocabularies; these have the sizes {sizes}")
        self._packed = tuple(map(PackedTransformer, self.models)) if all(map(can_pack, self.models)) else ()
        weight = self.models[0].output.weight
        self.device = weight.device
        self.tolerance = tolerance * torch.finfo(weight.dtype).eps / torch.finfo(torch.float32).eps
        self.redone = 0  # sentences that were searched again, alone

    def translate(self, sources: Sequence[Source], request: Request) -> Iterator[tuple[int, list[IdHypothesis]]]:
        """Yield the number of each source and its hypotheses, best first (draws as drawn), long sources first."""
        request = request._replace(search=self._within_positions(request.search))
        batches = list(self._divide(sources, request.search.width))
        near: list[int] = []
        searched = self._search_each([[sources[i] for i in numbers] for numbers in batches], request, len(sources) == 1)
        for numbers, (found, is_near) in zip(batches, searched, strict=True):
            near += compress(numbers, is_near)
            sure = [not is_so for is_so in is_near]
            yield from compress(zip(numbers, found, strict=True), sure)
        self.redone += len(near)
        again = self._search_each([[sources[i]] for i in near], request, alone=True)
        yield from ((i, found[0]) for i, (found, _) in zip(near, again, strict=True))

    def refuses(self, request: Request) -> str | None:
        """Return what of the request is not supported, or None."""
        return refuses(request.search, has_required=bool(request.required))

    def close(self) -> None:
        """Release the models."""
        self.models, self._packed = (), ()

    def _within_positions(self, search: SearchConfig) -> SearchConfig:
        limits = [model.config.max_positions for model in self.models if model.config.positions != "none"]
        return search.model_copy(update={"max_length": min(search.max_length, *limits)}) if limits else search

    def _divide(self, sources: Sequence[Source], width: int) -> Iterator[list[int]]:
        """Return the numbers of sentences of similar length, long ones first, in enough batches for all threads."""
        threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        share = len(sources) // (_SHARED * threads)  # none: too few to divide
        n_batches = 1 if not share else threads if share < 4 else 2 * threads
        most = -(-len(sources) // n_batches)
        most = min(most, _MAX_BATCH) if self.device.type == "cpu" else most
        sizes = [max(len(source.tokens) + 1, len(source.prefix)) for source in sources]
        return length_batches(sizes, max_tokens=self.max_tokens // width, max_rows=most)

    def _search_each(
        self, batches: Sequence[Sequence[Source]], request: Request, alone: bool
    ) -> Iterator[tuple[list[list[IdHypothesis]], list[bool]]]:
        """Search batches in order; on a CPU several at a time, which is faster than several threads on one batch.

        `alone` says that each batch is one sentence, and its translation is final.
        """
        threads = torch.get_num_threads()
        workers = min(threads, len(batches)) if self.device.type == "cpu" and not alone else 1
        if workers > 1:
            each = threads // workers
            pool = ThreadPoolExecutor(workers, "search", lambda: torch.set_num_threads(each))
            try:
                yield from pool.map(lambda batch: self._batch(batch, request, alone), batches)
            finally:
                pool.shutdown(cancel_futures=True)
                torch.set_num_threads(threads)  # MKL has one number of threads for all
            return
        for batch in batches:
            yield self._batch(batch, request, alone)

    @torch.inference_mode()
    def _batch(
        self, sources: Sequence[Source], request: Request, alone: bool
    ) -> tuple[list[list[IdHypothesis]], list[bool]]:
        """Translate a batch; return the hypotheses of each sentence, and whether it might get others alone."""
        memories = self._encode(sources)
        found = self._search(sources, memories, request)
        tokens, log_probs, scores = (part[:, : request.n_best] for part in found[:3])
        best = Hypotheses(tokens, log_probs, scores, found.margin)
        details = self._details(memories, best, request)
        rows = zip(best.tokens.tolist(), best.log_probs.tolist(), best.scores.tolist(), strict=True)
        answers = [
            [
                _answer(ids, log_prob, score, details, (row, rank), len(sources[row].tokens))
                for rank, (ids, log_prob, score) in enumerate(zip(*parts, strict=True))
                if score > -math.inf
            ]
            for row, parts in enumerate(rows)
        ]
        if alone:
            return answers, [False]
        length = (found.tokens != PAD).sum(dim=2).amax(dim=1)  # (B,)
        is_near = found.margin < self.tolerance * (length / _TOLERATED).clamp(min=0.25)
        return answers, is_near.tolist()

    def _encode(self, sources: Sequence[Source]) -> list[Memory]:
        batch = collate([source.tokens for source in sources], [()] * len(sources)).to(self.device)
        return [model.encode(batch.src, batch.src_mask) for model in self._packed or self.models]

    def _search(self, sources: Sequence[Source], memories: Sequence[Memory], request: Request) -> Hypotheses:
        continues = None
        if request.required and request.continuing:
            continues = torch.zeros(self.models[0].config.tgt_vocab, dtype=torch.bool, device=self.device)
            continues[list(request.continuing)] = True
        rules = make_rules(
            request.search,
            self.device,
            prefixes=[source.prefix for source in sources],
            suppressed=request.suppressed,
            required=request.required,
            continues=continues,
        )
        keys = torch.tensor([_key(source.tokens) for source in sources], device=self.device)
        start = torch.full((len(sources),), self.models[0].start_id, device=self.device)

        def run(models: Sequence[Stepper[S]], attention: Callable[[S], Tensor] | None = None) -> Hypotheses:
            states = [model.start(memory) for model, memory in zip(models, memories, strict=True)]
            ask = partial(search, start=start, config=request.search, n_best=request.n_best, keys=keys, rules=rules)
            if len(models) == 1:
                return ask(models[0].step, states[0], attention=attention)
            seen = None if attention is None else partial(_mean_attention, attention)
            return ask(ensemble([model.step for model in models]), States(tuple(states)), attention=seen)

        if needs_attention(request.search):
            return run([_Watching(model) for model in self.models], lambda state: state.attention)
        return run(self._packed) if self._packed else run(self.models)

    def _details(self, memories: Sequence[Memory], found: Hypotheses, request: Request) -> _Details:
        """Compute the log-probability and the attention of each token of whole hypotheses."""
        if not (request.token_log_probs or request.attention):
            return _Details()
        tokens = found.tokens.flatten(0, 1)  # (N, T)
        given = torch.cat([torch.full_like(tokens[:, :1], self.models[0].start_id), tokens[:, :-1]], dim=1)
        watcher = Watcher(f"dec.{alignment_layer(self.models[0], self.alignment)}.cross.weights")  # (N, H, T, S)
        scope = Scope(watcher) if request.attention else BLIND
        logits = [self.models[0].decode(given, memories[0], scope)]
        logits += [model.decode(given, memory) for model, memory in zip(self.models[1:], memories[1:], strict=True)]
        log_probs = mean_log_probs(logits).gather(2, tokens.unsqueeze(2))
        details = _Details(log_probs.view(found.tokens.shape).tolist() if request.token_log_probs else None)
        if not request.attention:
            return details
        (weights,) = watcher.kept
        attention = alignment_weights(weights, self.alignment)  # (N, T, S)
        return details._replace(attention=attention.view(*found.tokens.shape, -1).float().cpu().numpy())


def translate_ids(
    model: Transformer, sources: Sequence[Sequence[int]], search: SearchConfig
) -> Iterator[tuple[int, list[IdHypothesis]]]:
    """Translate sources (without end mark); yield the number and the hypotheses, best first, of each."""
    engine = TorchEngine([model])
    return engine.translate([Source(source) for source in sources], Request(search, n_best=search.width))


class _Details(NamedTuple):
    """What is reported of hypotheses besides their tokens."""

    token_log_probs: list[list[list[float]]] | None = None  # (B, W, T)
    attention: NDArray[np.float32] | None = None  # (B, W, T, S)


def _answer(
    padded: list[int], log_prob: float, score: float, details: _Details, place: tuple[int, int], n_source: int
) -> IdHypothesis:
    ended = EOS in padded
    tokens = padded[: padded.index(EOS)] if ended else [token for token in padded if token != PAD]
    row, rank = place
    log_probs, attention = details.token_log_probs, details.attention
    return IdHypothesis(
        tokens,
        log_prob,
        score,
        ended,
        None if log_probs is None else log_probs[row][rank][: len(tokens) + ended],
        None if attention is None else attention[row, rank, : len(tokens), :n_source].copy(),
    )


def _key(tokens: Sequence[int]) -> int:
    """Hash a sentence to 64 bits, the same on every machine."""
    digest = hashlib.blake2b(np.asarray(tokens, dtype="<i8").tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


class _Watched(NamedTuple):
    """A decoder state, and the mean attention of the last layer's heads in its last step."""

    state: DecoderState
    attention: Tensor = torch.empty(0)  # (N, S); 1 where there is padding, so that it counts as covered

    def select(self, rows: Tensor) -> _Watched:
        return _Watched(self.state.select(rows))

    def keep(self, sentences: Tensor) -> _Watched:
        return _Watched(self.state.keep(sentences))


class _Watching:
    """A Transformer whose states tell where it attended in its last step."""

    def __init__(self, model: Transformer) -> None:
        self.model, self.config, self.start_id, self.encode = model, model.config, model.start_id, model.encode

    def start(self, memory: Memory) -> _Watched:
        return _Watched(self.model.start(memory))

    def step(self, tokens: Tensor, state: _Watched) -> tuple[Tensor, _Watched]:
        watcher = Watcher(f"dec.{alignment_layer(self.model, None)}.cross.weights")
        logits, after = self.model.step(tokens, state.state, Scope(watcher))
        weights = alignment_weights(watcher.kept[0], None)[:, -1]  # (N, S)
        if after.allowed is not None:
            is_token = after.allowed[:, 0, 0].repeat_interleave(len(weights) // len(after.allowed), dim=0)
            weights = weights.masked_fill(~is_token, 1.0)
        return logits, _Watched(after, weights)


def _mean_attention(attention: Callable[[S], Tensor], state: States[S]) -> Tensor:
    return torch.stack([attention(member) for member in state.members]).mean(dim=0)
