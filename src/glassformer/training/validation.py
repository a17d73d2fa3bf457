"""What dev says of a set of weights: perplexity, BLEU, and two sentences to read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from glassformer.config import ModelConfig, SearchConfig
from glassformer.data.batches import collate
from glassformer.data.pair import Pair
from glassformer.errors import DataError
from glassformer.evaluation.scores import bleu
from glassformer.model.transformer import Transformer
from glassformer.search.mbr import agreement
from glassformer.text.tokenizer import Tokenizers
from glassformer.text.vocab import PAD
from glassformer.training.loss import cross_entropy
from glassformer.translate.engines.torch import translate_ids

_BATCH: Final = 64  # sentences


class Sample(NamedTuple):
    """A sentence of dev, its translation, and what it should be."""

    src: str
    hypothesis: str
    reference: str


class Verdict(NamedTuple):
    """What dev says."""

    loss: float  # per target token, without smoothing
    bleu: float
    signature: str
    samples: tuple[Sample, ...]

    @property
    def perplexity(self) -> float:
        """How many words the model hesitates between."""
        return math.exp(min(self.loss, 100.0))

    def entry(self, step: int) -> dict[str, Any]:
        """Give a line for metrics.jsonl."""
        return {
            "step": step,
            "loss": self.loss,
            "perplexity": self.perplexity,
            "bleu": self.bleu,
            "signature": self.signature,
            "samples": [sample._asdict() for sample in self.samples],
        }


class Judge:
    """A copy of the model that only looks at dev; weights are lent to it."""

    def __init__(
        self,
        config: ModelConfig,
        dev: Sequence[Pair],
        tokenizers: Tokenizers,
        search: SearchConfig,
        device: torch.device,
        translated: int,
        tokenize: str,
    ) -> None:
        self.model = Transformer(config).to(device).eval()
        self.tokenizers, self.search, self.tokenize = tokenizers, search, tokenize
        sources = tokenizers.src.encode_batch([pair.src for pair in dev])
        targets = tokenizers.tgt.encode_batch([pair.tgt for pair in dev])
        limit = config.max_positions if config.positions != "none" else math.inf
        fits = [max(len(src), len(tgt)) < limit for src, tgt in zip(sources, targets, strict=True)]
        self.dev = list(compress(dev, fits))
        self.sources, self.targets = (list(compress(rows, fits)) for rows in (sources, targets))
        if not self.dev:
            raise DataError(f"all {len(dev)} pairs of dev are longer than the model's max_positions={limit}")
        count = min(translated, len(self.dev))
        self.translated = [i * len(self.dev) // count for i in range(count)]  # evenly, as dev may be several files

    def examples(self, count: int) -> list[str]:
        """Give some sources of dev, evenly spread, a line each."""
        step = -(-len(self.dev) // count)
        return [" ".join(pair.src.splitlines()) for pair in self.dev[::step]]

    def __call__(self, weights: Mapping[str, Tensor], search: SearchConfig | None = None) -> Verdict:
        """Measure `weights` on dev, searched as the recipe says or otherwise."""
        for name, parameter in self.model.named_parameters():
            parameter.data = weights[name].to(parameter.device)  # lent, not copied
        hypotheses, search = [""] * len(self.translated), search or self.search
        for number, found in translate_ids(self.model, [self.sources[i] for i in self.translated], search):
            ways = [self.tokenizers.tgt.decode(way.tokens) for way in found]
            hypotheses[number] = max(zip(agreement(ways), ways, strict=True))[1] if search.method == "mbr" else ways[0]
        asked = [self.dev[i] for i in self.translated]
        score = bleu(hypotheses, [pair.tgt for pair in asked], self.tokenize)
        shown = (len(asked) // 3, 2 * len(asked) // 3)
        samples = tuple(Sample(asked[i].src, hypotheses[i], asked[i].tgt) for i in shown)
        return Verdict(self._loss(), score.value, score.signature, samples)

    @torch.inference_mode()
    def _loss(self) -> float:
        total, count = 0.0, 0
        order = sorted(range(len(self.dev)), key=lambda i: (len(self.targets[i]), len(self.sources[i])))
        for start in range(0, len(order), _BATCH):
            numbers = order[start : start + _BATCH]
            batch = collate(
                [self.sources[i] for i in numbers], [self.targets[i] for i in numbers], self.model.start_id
            ).to(self.model.output.weight.device)
            hidden = self.model.hidden(batch.src, batch.tgt_in, batch.src_mask)
            is_token = batch.tgt_out != PAD
            output = self.model.output
            loss = cross_entropy(hidden[is_token], output.weight, output.bias, batch.tgt_out[is_token])
            total, count = total + loss.item(), count + batch.n_tokens
        return total / max(count, 1)
