"""Small models to look at: the sentences of the notes as ids, seeded weights, and a notebook that keeps tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.attention import MultiHeadAttention
from glassformer.model.scope import Call
from glassformer.model.trace import Trace
from glassformer.model.transformer import Transformer

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
    """Look up the ids of words."""
    return [LEXICON.index(word) for word in sentence]


def words(tokens: Sequence[int]) -> tuple[str, ...]:
    """Look up the words of ids."""
    return tuple(LEXICON[token] for token in tokens)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from a seed inside, and leave torch's own random numbers as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def model(seed: int, gain: float = 1.0, **settings: Any) -> Transformer:
    """Make a small model over the lexicon, in float64 and without gradients; `settings` as in ModelConfig.

    Biases are drawn too, so that they can be seen; `gain` multiplies W_Q, W_K and W_V, whose random
    values leave attention almost even.
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
    """Make an attention whose W_Q, W_K, W_V and W_O change nothing: queries, keys and values are what goes in."""
    with seeded(0):
        config = ModelConfig(d_model=d_model, n_heads=n_heads, scaled_attention=scaled, attention_bias=False)
        attention = MultiHeadAttention(config).double().eval().requires_grad_(False)
    identity = torch.eye(d_model, dtype=torch.float64)
    attention.projection.weight.copy_(identity.repeat(3, 1))
    attention.output.weight.copy_(identity)
    return attention


def seen(trace: Trace, address: str) -> Tensor:
    """Give the tensor at an address that names no single number."""
    found = trace[address]
    assert isinstance(found, Tensor), f"{address} is one number"
    return found


def gap(a: Tensor, b: Tensor) -> float:
    """Give the largest difference between two tensors of one shape."""
    assert a.shape == b.shape, f"{tuple(a.shape)} and {tuple(b.shape)} cannot be compared"
    return (a - b).abs().max().item()


@dataclass(frozen=True)
class Notebook:
    """A recorder that keeps what modules name, each time they do."""

    kept: dict[str, list[Tensor]] = field(default_factory=dict)

    def record(self, call: Call) -> Tensor:
        """Compute a tensor and keep it under its address."""
        value = call.compute()
        self.kept.setdefault(call.address, []).append(value)
        return value

    def __getitem__(self, address: str) -> Tensor:
        """Give what was last kept under an address, without the batch."""
        return self.kept[address][-1][0]

    def times(self, address: str) -> int:
        """Count how often a tensor was computed."""
        return len(self.kept.get(address, ()))
