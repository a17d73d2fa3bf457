"""Validation of a set of weights: loss and perplexity, scores of translations, and two sentences to read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from glassformer.config import ModelConfig, SearchConfig
from glassformer.data.batches import collate, length_batches
from glassformer.data.pair import Pair
from glassformer.errors import DataError
from glassformer.evaluation.scores import Score, measure
from glassformer.model.transformer import Transformer
from glassformer.search.mbr import agreement
from glassformer.text.tokenizer import Tokenizers
from glassformer.text.vocab import PAD
from glassformer.training.loss import cross_entropy
from glassformer.training.recipe import Recipe
from glassformer.translate.engines.torch import translate_ids

_MAX_TOKENS: Final = 4096  # per batch, padded
SCORES: Final = {"bleu": "BLEU", "chrf": "chrF"}  # name in metrics.jsonl -> label in reports, and to `measure`


def score_of(metric: str) -> str:
    """Return by which score to judge the translations of a run that selects by `metric`."""
    return metric if metric in SCORES else "bleu"


def goodness(metric: str, figures: Mapping[str, Any]) -> float:
    """Return how good a validation is by `metric`, higher is better; one that lacks it is the worst."""
    value = float(figures.get(metric, math.nan))
    return -math.inf if math.isnan(value) else -value if metric == "loss" else value


class Sample(NamedTuple):
    """A validation sentence, its translation and its reference."""

    src: str
    hypothesis: str
    reference: str


class Validation(NamedTuple):
    """The figures of a set of weights on the validation set."""

    loss: float  # per target token, without smoothing
    scores: dict[str, Score]  # by the metric's name
    samples: tuple[Sample, ...]

    @property
    def perplexity(self) -> float:
        """The number of tokens that the model hesitates between."""
        return math.exp(min(self.loss, 100.0))

    @property
    def figures(self) -> dict[str, float]:
        """All figures by name, as in metrics.jsonl."""
        scores = {name: score.value for name, score in self.scores.items()}
        return {"loss": self.loss, "perplexity": self.perplexity, **scores}

    def entry(self, step: int) -> dict[str, Any]:
        """Return a line of metrics.jsonl."""
        samples = [sample._asdict() for sample in self.samples]
        return {"step": step, **self.figures, "signature": self.scores["bleu"].signature, "samples": samples}

    def __str__(self) -> str:
        scores = (f"{SCORES[name]} {score.value:.2f}" for name, score in self.scores.items())
        return ", ".join((f"perplexity {self.perplexity:.2f}", *scores))


class Validator:
    """A validation set and a second model that measures weights on it."""

    def __init__(
        self, recipe: Recipe, config: ModelConfig, dev: Sequence[Pair], tokenizers: Tokenizers, device: torch.device
    ) -> None:
        self.model = Transformer(config).to(device).eval()
        for parameter in self.model.parameters():
            parameter.data = torch.empty(0, device=device)  # `validate` lends it the weights
        self.device, self.tokenizers = device, tokenizers
        self.search, self.tokenize = recipe.search, recipe.bleu_tokenize
        sources = tokenizers.src.encode_batch([pair.src for pair in dev])
        targets = tokenizers.tgt.encode_batch([pair.tgt for pair in dev])
        limit = config.max_positions if config.positions != "none" else math.inf
        fits = [max(len(src), len(tgt)) < limit for src, tgt in zip(sources, targets, strict=True)]
        self.dev = list(compress(dev, fits))
        self.sources, self.targets = (list(compress(rows, fits)) for rows in (sources, targets))
        if not self.dev:
            raise DataError(f"all {len(dev)} validation pairs are longer than the model's max_positions={limit}")
        count = min(recipe.training.validate_on, len(self.dev))
        self.translated = [i * len(self.dev) // count for i in range(count)]  # evenly, as dev may be several files

    def examples(self, count: int) -> list[str]:
        """Return up to `count` sources, evenly spread, each on one line."""
        step = -(-len(self.dev) // count)
        return [" ".join(pair.src.splitlines()) for pair in self.dev[::step]]

    def validate(self, weights: Mapping[str, Tensor], search: SearchConfig | None = None) -> Validation:
        """Measure `weights`, with the recipe's search settings or others."""
        for name, parameter in self.model.named_parameters():
            parameter.data = weights[name].to(self.device)  # lent, not copied
        hypotheses, search = [""] * len(self.translated), search or self.search
        for number, found in translate_ids(self.model, [self.sources[i] for i in self.translated], search):
            ways = [self.tokenizers.tgt.decode(way.tokens) for way in found]
            hypotheses[number] = max(zip(agreement(ways), ways, strict=True))[1] if search.method == "mbr" else ways[0]
        pairs = [self.dev[i] for i in self.translated]
        scores = measure(hypotheses, [pair.tgt for pair in pairs], self.tokenize, list(SCORES.values()))
        shown = (len(pairs) // 3, 2 * len(pairs) // 3)
        samples = tuple(Sample(pairs[i].src, hypotheses[i], pairs[i].tgt) for i in shown)
        return Validation(self._loss(), dict(zip(SCORES, scores.values(), strict=True)), samples)

    @torch.inference_mode()
    def _loss(self) -> float:
        total, count = 0.0, 0
        lengths = [max(len(src), len(tgt)) + 1 for src, tgt in zip(self.sources, self.targets, strict=True)]
        for numbers in length_batches(lengths, max_tokens=_MAX_TOKENS):
            sources, targets = ([side[i] for i in numbers] for side in (self.sources, self.targets))
            batch = collate(sources, targets, self.model.start_id).to(self.device)
            hidden = self.model.hidden(batch.src, batch.tgt_in, batch.src_mask)
            is_token = batch.tgt_out != PAD
            output = self.model.output
            loss = cross_entropy(hidden[is_token], output.weight, output.bias, batch.tgt_out[is_token])
            total, count = total + loss.item(), count + batch.n_tokens
        return total / max(count, 1)
