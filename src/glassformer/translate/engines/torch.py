"""Translation by our own models: token ids in, hypotheses out, in batches of similar length, whatever the batch.

B sentences, W beam width, N = B * W prefixes, S source length, T target length, V vocabulary.

Floating point sums depend on the shape of a batch and on the threads that share the work, so near ties could fall this
way or that. A search says how near it came to going another way; a sentence for which that is less than `tolerance` is
searched once more, alone, without padding and by all threads. So every translation is the one that it gets alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.errors import ConfigError
from glassformer.model.fast.packed import PackedTransformer, can_pack
from glassformer.model.scope import BLIND, Scope
from glassformer.model.state import DecoderState, Memory
from glassformer.model.trace import Watcher
from glassformer.model.transformer import Transformer
from glassformer.search.beam import beam_search
from glassformer.search.ensemble import States, ensemble, mean_log_probs
from glassformer.search.hypotheses import Hypotheses, Step, gap
from glassformer.search.rules import make_rules
from glassformer.search.sample import sample
from glassformer.store.folder import AttentionHead
from glassformer.text.vocab import EOS, PAD
from glassformer.translate.engines.engine import Found, Request, Source

# In log-probability and float32. Between batch shapes the sum over a translation moved by up to 1.5e-6 a token (4 + 4
# layers, d_model 128, up to 60 tokens; packed, and by one thread or two, 0.8e-6), so a gap of two by up to 1e-4 over 32
# tokens, and longer ones by more.
TOLERANCE: Final = 1e-4
_TOLERATED: Final = 32  # tokens; with more of them the tolerance is more, with fewer less, down to a quarter
MAX_TOKENS: Final = 8192
_SHARED: Final = 8  # sentences for each thread, from which batches are searched side by side
_MOST: Final = 64  # sentences in a batch on a CPU: with more of them their numbers leave its caches


class TorchEngine:
    """Our own models; several of them, which share a vocabulary, are searched as an ensemble."""

    name = "torch"
    is_shared = False

    def __init__(
        self,
        models: Sequence[Transformer],
        alignment: AttentionHead | None = None,
        max_tokens: int = MAX_TOKENS,
        tolerance: float = TOLERANCE,
    ) -> None:
        """Take the models, the first one's head that aligns best, and the padded tokens, of all beams, in a batch."""
        self.models, self.alignment, self.max_tokens = tuple(models), alignment, max_tokens
        sizes = sorted({(model.config.src_vocab, model.config.tgt_vocab) for model in self.models})
        if len(sizes) != 1:
            raise ConfigError(f"models of an ensemble share their vocabularies; these have the sizes {sizes}")
        self._quick = tuple(PackedTransformer(model) if can_pack(model) else model for model in self.models)
        weight = self.models[0].output.weight
        self.device = weight.device
        self.tolerance = tolerance * torch.finfo(weight.dtype).eps / torch.finfo(torch.float32).eps
        self.redone = 0  # sentences that were searched once more, alone

    def translate(self, sources: Sequence[Source], request: Request) -> Iterator[tuple[int, list[Found]]]:
        """Give the number of each source and its hypotheses, best first (draws as drawn), long sources first."""
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
        """Say what of the request cannot be done: only draws that must hold required words."""
        if request.search.method != "beam" and request.required:
            return f"required words need beam search, not method={request.search.method}"
        return None

    def close(self) -> None:
        """Let go of the models."""
        self.models = self._quick = ()

    def _within_positions(self, search: SearchConfig) -> SearchConfig:
        limits = [model.config.max_positions for model in self.models if model.config.positions != "none"]
        return search.model_copy(update={"max_length": min(search.max_length, *limits)}) if limits else search

    def _divide(self, sources: Sequence[Source], width: int) -> Iterator[list[int]]:
        """Give the numbers of sentences of similar length, long ones first, in batches enough for all threads."""
        order = sorted(range(len(sources)), key=lambda i: -_size(sources[i]))
        threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        share = len(order) // (_SHARED * threads)  # none: too few to divide
        n_batches = 1 if not share else threads if share < 4 else 2 * threads
        most = -(-len(order) // n_batches)
        most = min(most, _MOST) if self.device.type == "cpu" else most
        while order:
            count = max(1, min(most, self.max_tokens // (_size(sources[order[0]]) * width)))
            yield order[:count]
            order = order[count:]

    def _search_each(
        self, batches: Sequence[Sequence[Source]], request: Request, alone: bool
    ) -> Iterator[tuple[list[list[Found]], list[bool]]]:
        """Search batches in order, on a CPU several at a time, which shares the work better than threads in each do.

        `alone`: each batch is one sentence, and its translation is final.
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
    def _batch(self, sources: Sequence[Source], request: Request, alone: bool) -> tuple[list[list[Found]], list[bool]]:
        """Translate a batch; give the hypotheses of each sentence, and whether alone it might have others."""
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
        is_near = _n_best_margin(found, request) < self.tolerance * (length / _TOLERATED).clamp(min=0.25)
        return answers, is_near.tolist()

    def _encode(self, sources: Sequence[Source]) -> list[Memory]:
        longest = max(len(source.tokens) for source in sources) + 1
        rows = [[*source.tokens, EOS, *[PAD] * (longest - len(source.tokens) - 1)] for source in sources]
        src = torch.tensor(rows, device=self.device)  # (B, S)
        lengths = torch.tensor([len(source.tokens) + 1 for source in sources])
        is_token = torch.arange(longest) < lengths.unsqueeze(1)  # (B, S)
        mask = None if is_token.all() else is_token.to(self.device)
        return [model.encode(src, mask) for model in self._quick]

    def _search(self, sources: Sequence[Source], memories: Sequence[Memory], request: Request) -> Hypotheses:
        search = request.search
        prefixes = [source.prefix for source in sources]
        continues = None
        if request.required and request.continuing:
            continues = torch.zeros(self.models[0].config.tgt_vocab, dtype=torch.bool, device=self.device)
            continues[list(request.continuing)] = True
        rules = make_rules(search, self.device, prefixes, request.suppressed, request.required, continues)
        start = torch.full((len(sources),), self.models[0].start_id, device=self.device)
        watched = search.coverage_penalty > 0 and search.method == "beam"
        models = self.models if watched else self._quick
        steps: list[Step[Any]] = [model.step for model in models]
        states: list[Any] = [model.start(memory) for model, memory in zip(models, memories, strict=True)]
        if watched:
            steps = [_watched(model) for model in self.models]
            states = [_Watched(state, None) for state in states]
        step, state = (steps[0], states[0]) if len(steps) == 1 else (ensemble(steps), States(tuple(states)))
        if search.method == "beam":
            return beam_search(step, state, start, search, rules, _attention if watched else None)
        keys = torch.tensor([_key(source.tokens) for source in sources], device=self.device)
        return sample(step, state, start, search, keys, rules)

    def _details(self, memories: Sequence[Memory], found: Hypotheses, request: Request) -> _Details:
        """Ask the models again about whole hypotheses: the log-probability and the attention of each token."""
        if not (request.token_log_probs or request.attention):
            return _Details()
        tokens = found.tokens.flatten(0, 1)  # (N, T)
        given = torch.cat([torch.full_like(tokens[:, :1], self.models[0].start_id), tokens[:, :-1]], dim=1)
        head = self.alignment
        layer = self.models[0].config.n_decoder_layers - 1 if head is None else head.layer
        watcher = Watcher(f"dec.{layer}.cross.weights")  # (N, H, T, S)
        scope = Scope(watcher) if request.attention else BLIND
        logits = [self.models[0].decode(given, memories[0], scope)]
        logits += [model.decode(given, memory) for model, memory in zip(self.models[1:], memories[1:], strict=True)]
        log_probs = mean_log_probs(logits).gather(2, tokens.unsqueeze(2))
        details = _Details(log_probs.view(found.tokens.shape).tolist() if request.token_log_probs else None)
        if not request.attention:
            return details
        (weights,) = watcher.kept
        attention = weights.mean(dim=1) if head is None else weights[:, head.head]  # (N, T, S)
        return details._replace(attention=attention.view(*found.tokens.shape, -1).float().cpu().numpy())


def translate_ids(
    model: Transformer, sources: Sequence[Sequence[int]], search: SearchConfig
) -> Iterator[tuple[int, list[Found]]]:
    """Translate sources (without end mark), longest first; give each one's number and its hypotheses, best first."""
    engine = TorchEngine([model])
    return engine.translate([Source(source) for source in sources], Request(search, n_best=search.width))


class _Details(NamedTuple):
    """What was asked of hypotheses besides their tokens."""

    token_log_probs: list[list[list[float]]] | None = None  # (B, W, T)
    attention: np.ndarray[Any, np.dtype[np.float32]] | None = None  # (B, W, T, S)


def _answer(
    padded: list[int], log_prob: float, score: float, details: _Details, place: tuple[int, int], n_source: int
) -> Found:
    ended = EOS in padded
    tokens = padded[: padded.index(EOS)] if ended else [token for token in padded if token != PAD]
    row, rank = place
    log_probs, attention = details.token_log_probs, details.attention
    return Found(
        tokens,
        log_prob,
        score,
        ended,
        None if log_probs is None else log_probs[row][rank][: len(tokens) + ended],
        None if attention is None else attention[row, rank, : len(tokens), :n_source].copy(),
    )


def _n_best_margin(found: Hypotheses, request: Request) -> Tensor:
    """Say how little would change any of the n best (B,), not only the best; draws are not ranked."""
    if request.n_best == 1 or request.search.method != "beam":
        return found.margin
    tokens, ranked = found.tokens[:, : request.n_best + 1], found.scores[:, : request.n_best + 1]
    same = (tokens[:, 1:] == tokens[:, :-1]).all(dim=2)  # groups may find the same
    gaps = gap(ranked[:, :-1], ranked[:, 1:]).masked_fill(same, math.inf)
    return found.margin.minimum(gaps.amin(dim=1)) if gaps.size(1) else found.margin


def _size(source: Source) -> int:
    return max(len(source.tokens) + 1, len(source.prefix))


def _key(tokens: Sequence[int]) -> int:
    """Make 64 bits of a sentence, the same on every machine."""
    digest = hashlib.blake2b(np.asarray(tokens, dtype="<i8").tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


class _Watched(NamedTuple):
    """A state that remembers where its last step looked: the mean over the heads of the last layer."""

    state: DecoderState
    weights: Tensor | None  # (N, S); 1 where there is padding, so that it counts as covered

    def select(self, rows: Tensor) -> _Watched:
        return _Watched(self.state.select(rows), None)

    def keep(self, sentences: Tensor) -> _Watched:
        return _Watched(self.state.keep(sentences), None)


def _watched(model: Transformer) -> Step[_Watched]:
    def step(tokens: Tensor, state: _Watched) -> tuple[Tensor, _Watched]:
        watcher = Watcher(f"dec.{model.config.n_decoder_layers - 1}.cross.weights")
        logits, after = model.step(tokens, state.state, Scope(watcher))
        weights = watcher.kept[0].mean(dim=1)[:, -1]  # (N, S)
        if after.allowed is not None:
            is_token = after.allowed[:, 0, 0].repeat_interleave(len(weights) // len(after.allowed), dim=0)
            weights = weights.masked_fill(~is_token, 1.0)
        return logits, _Watched(after, weights)

    return step


def _attention(state: _Watched | States) -> Tensor:
    members: tuple[_Watched, ...] = state.members if isinstance(state, States) else (state,)
    weights = [member.weights for member in members if member.weights is not None]
    return torch.stack(weights).mean(dim=0)
