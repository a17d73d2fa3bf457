"""Small models to look at: a few sentences as ids, seeded weights, and a notebook that keeps tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from rich.text import Text
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.attention import MultiHeadAttention
from glassformer.model.scope import Call
from glassformer.model.trace import Intervention, Trace, look
from glassformer.model.transformer import Transformer
from glassformer.report.terminal import heat_map

FRENCH: Final = ("Jane", "visite", "l'Afrique", "en", "septembre")
ENGLISH: Final = ("Jane", "visits", "Africa", "in", "September")
WOMAN: Final = ("the", "woman", "ate", "the", "raccoon")
RACCOON: Final = ("the", "raccoon", "ate", "the", "woman")
THINKING: Final = ("Thinking", "Machines")

# Every word of these sentences once, after the special ids in the order of text.vocab.
LEXICON: Final = tuple(
    dict.fromkeys(("<pad>", "<unk>", "<sos>", "<eos>", *FRENCH, *ENGLISH, *WOMAN, *RACCOON, *THINKING))
)


def ids(sentence: Sequence[str]) -> list[int]:
    """Return the ids of words."""
    return [LEXICON.index(word) for word in sentence]


def words(tokens: Sequence[int]) -> tuple[str, ...]:
    """Return the words of ids."""
    return tuple(LEXICON[token] for token in tokens)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw random numbers from a seed, and leave torch's own generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def model(seed: int, gain: float = 1.0, **settings: Any) -> Transformer:
    """Return a small model over the lexicon, in float64 and without gradients; `settings` as in ModelConfig.

    Biases are random too, so that they show; `gain` multiplies W_Q, W_K and W_V, which as initialised
    leave attention almost even.
    """
    small = {"src_vocab": len(LEXICON), "tgt_vocab": len(LEXICON), "d_model": 16, "n_heads": 2, "d_ff": 32}
    depth = {"n_encoder_layers": 2, "n_decoder_layers": 2, "max_positions": 64, "dropout": 0.0}
    with seeded(seed):
        specimen = Transformer(ModelConfig.parse({**small, **depth, **settings}, "specimen"))
        specimen = specimen.double().eval().requires_grad_(False)
        for part in specimen.modules():
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.normal_(part.bias, std=0.1)
            if isinstance(part, MultiHeadAttention):
                part.projection.weight.mul_(gain)
    return specimen


def clear_attention(d_model: int, n_heads: int = 1, scaled: bool = True) -> MultiHeadAttention:
    """Return an attention whose W_Q, W_K, W_V and W_O are identities: queries, keys and values are its input."""
    with seeded(0):
        config = ModelConfig(d_model=d_model, n_heads=n_heads, scaled_attention=scaled, attention_bias=False)
        attention = MultiHeadAttention(config).double().eval().requires_grad_(False)
    identity = torch.eye(d_model, dtype=torch.float64)
    attention.projection.weight.copy_(identity.repeat(3, 1))
    attention.output.weight.copy_(identity)
    return attention


def traced(
    specimen: Transformer, src: Sequence[str] = FRENCH, tgt: Sequence[str] = (), *interventions: Intervention
) -> Trace:
    """Run a model over words and keep every tensor; without `tgt` the decoder reads its start token only."""
    return look(specimen, ids(src), ids(tgt) or [specimen.start_id], interventions)


def seen(trace: Trace, address: str) -> Tensor:
    """Return the tensor at an address that does not name a single number."""
    found = trace[address]
    assert isinstance(found, Tensor), f"{address} is one number"
    return found


def count(kind: Callable[[ModelConfig], nn.Module], config: ModelConfig) -> int:
    """Count the parameters of a model or of a part of it, without allocating them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in kind(config).parameters())


def picture(
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    low: float = 0,
    high: float = 1,
    digits: int | None = 2,
) -> Text:
    """Draw a matrix, such as attention weights (T, S), with a legend."""
    ends = f"{low:g}", f"{high:g}"
    return heat_map(values.tolist(), rows, columns, low=low, high=high, digits=digits, ends=ends)


def gap(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference between two tensors of the same shape."""
    assert a.shape == b.shape, f"{tuple(a.shape)} and {tuple(b.shape)} cannot be compared"
    return (a - b).abs().max().item()


@dataclass(frozen=True)
class Notebook:
    """A recorder that keeps every tensor that modules name, each time it is computed."""

    kept: dict[str, list[Tensor]] = field(default_factory=dict)

    def __call__(self, call: Call) -> Tensor:
        """Compute a tensor and keep it under its address."""
        value = call.compute()
        self.kept.setdefault(call.address, []).append(value)
        return value

    def __getitem__(self, address: str) -> Tensor:
        """Return the last tensor kept under an address, without the batch axis."""
        return self.kept[address][-1][0]

    def times(self, address: str) -> int:
        """Return how often a tensor was computed."""
        return len(self.kept.get(address, ()))
