"""Rows 21 to 24: how the whole is trained, its sizes, and the sentences it is for."""

from __future__ import annotations

from collections.abc import Callable
from timeit import timeit
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.benchmark import set_torch_threads

from glassformer.config import PRESETS, ModelConfig, SearchConfig, TrainingConfig, preset
from glassformer.data.batches import collate
from glassformer.model.attention import MultiHeadAttention
from glassformer.model.transformer import Transformer
from glassformer.notes.note import Slots
from glassformer.notes.specimen import ENGLISH, FRENCH, LEXICON, THINKING, count, ids, model, seeded, traced
from glassformer.report.demo import JANE, looked_at
from glassformer.report.terminal import bar, table
from glassformer.search.beam import beam_search
from glassformer.store.folder import read_config
from glassformer.store.registry import DEFAULT_MODEL
from glassformer.text.vocab import EOS, PAD, SPECIAL
from glassformer.training.adam import Adam
from glassformer.training.loss import cross_entropy
from glassformer.translate.translator import Translator

PHRASES: Final = {
    "bonjour": "hello",
    "merci": "thank you",
    "bonne nuit": "good night",
    "à demain": "see you tomorrow",
    "je t'aime": "i love you",
}
PAPER_MILLIONS: Final = {"base": 65, "big": 213}  # Vaswani et al. 2017, Table 3


class Loss(NamedTuple):
    """The loss of one sentence: all positions in one pass, and step by step."""

    one_pass: float
    steps: list[float]


def loss_both_ways() -> Loss:
    """Compute the cross-entropy of the right words in both ways, as training would."""
    specimen = model(21, gain=2.0)
    weight, bias = specimen.output.weight, specimen.output.bias
    src = torch.tensor([ids(FRENCH)])
    targets = torch.tensor([*ids(ENGLISH), EOS])
    shifted = torch.tensor([[specimen.start_id, *ids(ENGLISH)]])
    one_pass = cross_entropy(specimen.hidden(src, shifted)[0], weight, bias, targets).item()
    steps, state = [], specimen.start(specimen.encode(src))
    for token, target in zip(shifted[0], targets, strict=True):
        hidden, state = specimen.read(token.view(1, 1), state)
        steps.append(cross_entropy(hidden[0], weight, bias, target.view(1)).item())
    return Loss(one_pass, steps)


class Timing(NamedTuple):
    """Seconds for one forward and backward pass over one sequence."""

    length: int
    gru: float
    attention: float


def time_both(lengths: tuple[int, ...], width: int = 64, seconds: float = 1.5) -> list[Timing]:
    """Time nn.GRU and our self-attention in training, the fastest of several passes; takes about `seconds` in all."""
    # One thread, so that other work on this machine disturbs the measurement less.
    with seeded(21), set_torch_threads(1), torch.enable_grad():
        gru = nn.GRU(width, width, batch_first=True)
        attention = MultiHeadAttention(ModelConfig(d_model=width, n_heads=8))

        def best(layer: Callable[[Tensor], Tensor], x: Tensor) -> float:
            times: list[float] = []
            while len(times) < 2 or sum(times) < seconds / (2 * len(lengths)):
                times.append(timeit(lambda: torch.autograd.backward(layer(x).sum()), number=1))
            return min(times)

        return [
            Timing(
                x.size(1), best(lambda x: gru(x)[0], x), best(lambda x: attention(*attention.query_and_memory(x)), x)
            )
            for x in (torch.randn(1, length, width) for length in lengths)
        ]


def parallel() -> Slots:
    loss = loss_both_ways()
    reads, says = ("<sos>", *ENGLISH), (*ENGLISH, "<eos>")
    steps = [(read, say, f"{value:.4f}") for read, say, value in zip(reads, says, loss.steps, strict=True)]
    timings = time_both((8, 32, 128, 512))
    top = max(max(t.gru, t.attention) for t in timings)
    rows = [
        (f"{t.length}" if name == "GRU" else "", name, f"{1e3 * value:.2f}", f"{n}", bar(value, top, 26))
        for t in timings
        for name, value, n in (("GRU", t.gru, t.length), ("attention", t.attention, 1))
    ]
    return {
        "steps": table(("reads (and all before)", "must say", "-log p"), steps),
        "loss": loss,
        "timings": table(("length", "layer", "ms", "in a row", ""), rows),
        "ratios": ", ".join(f"{t.gru / t.attention:.1f} at length {t.length}" for t in timings),
    }


class Learned(NamedTuple):
    """What the pocket model says of each phrase after some updates."""

    updates: int
    loss: float  # per token
    said: list[str]


def learn_phrases(marks: tuple[int, ...] = (0, 20, 200)) -> list[Learned]:
    """Train the pocket model on all phrases at once, and ask it after each number of updates in `marks`."""
    words = [*SPECIAL, *dict.fromkeys(" ".join([*PHRASES, *PHRASES.values()]).split())]
    src, tgt = ([[words.index(word) for word in text.split()] for text in side] for side in (PHRASES, PHRASES.values()))
    with seeded(22), torch.enable_grad():
        pocket = Transformer(preset("pocket", vocab=len(words), max_positions=16))
        optimizer = Adam(pocket.parameters(), TrainingConfig(lr=0.01))
        batch = collate(src, tgt, pocket.start_id)
        is_token = batch.tgt_out != PAD  # (B, T)
        learned = []
        for update in range(max(marks) + 1):
            hidden = pocket.hidden(batch.src, batch.tgt_in, batch.src_mask)[is_token]
            loss = cross_entropy(hidden, pocket.output.weight, pocket.output.bias, batch.tgt_out[is_token])
            if update in marks:
                learned.append(Learned(update, loss.item() / len(hidden), _say(pocket, batch.src, words)))
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
    return learned


@torch.no_grad()
def _say(pocket: Transformer, src: Tensor, words: list[str]) -> list[str]:
    state = pocket.start(pocket.encode(src, src != PAD))
    start = torch.full((len(src),), pocket.start_id)
    found = beam_search(pocket.step, state, start, SearchConfig(max_length=6)).tokens[:, 0].tolist()
    return [" ".join(words[token] for token in row if token not in (PAD, EOS)) for row in found]


def pocket() -> Slots:
    config = preset("pocket", vocab=len(LEXICON), max_positions=64)
    with seeded(22):
        pocket = Transformer(config).double().eval().requires_grad_(False)
    trace = traced(pocket)
    stages = {
        "word embedding": "enc.embedding",
        "position": "enc.position",
        "their sum": "enc.sum",
        "self-attention": "enc.0.self.output",
        "residual": "enc.0.add1.sum",
    }
    shapes = [(*stage, "×".join(map(str, trace.entry(stage[1]).shape))) for stage in stages.items()]
    learned = learn_phrases()
    rows = [("loss per token", *(f"{each.loss:.3f}" for each in learned))]
    rows += [(phrase, *(each.said[i] for each in learned)) for i, phrase in enumerate(PHRASES)]
    return {
        "stages": table(("stage", "address", "shape"), shapes),
        "n_tensors": len(trace),
        "absent": ", ".join(part for part in ("norm", "ff") if not any(f".{part}" in address for address in trace)),
        "start": LEXICON[pocket.start_id],
        "vocab": config.tgt_vocab,
        "width": config.d_model,
        "n_attentions": sum(isinstance(part, MultiHeadAttention) for part in pocket.modules()),
        "counted": count(Transformer, config),
        "n_phrases": len(PHRASES),
        "learned": table(("", *(f"after {each.updates} updates" for each in learned)), rows),
    }


def sizes() -> Slots:
    rows = []
    for name in PRESETS:
        config = preset(name)
        layers = f"{config.n_encoder_layers}+{config.n_decoder_layers}"
        shape = (layers, f"{config.d_model}", f"{config.n_heads}", f"{config.d_ff:,}")
        said = f"{PAPER_MILLIONS[name]} million" if name in PAPER_MILLIONS else ""
        rows.append((name, *shape, f"{count(Transformer, config):,}", said))
    header = ("preset", "layers", "d_model", "heads", "d_ff", "parameters", "the paper prints")
    shipped = read_config(DEFAULT_MODEL)
    return {
        "base": ModelConfig(),
        "presets": table(header, rows),
        "paper": PAPER_MILLIONS,
        "name": DEFAULT_MODEL,
        "shipped": shipped.model,
        "size": count(Transformer, shipped.model),
        "tokens": shipped.about.training["tokens"],
    }


def jane() -> Slots:
    specimen = model(24)
    hidden = specimen.hidden(torch.tensor([ids(FRENCH)]), torch.tensor([[specimen.start_id, *ids(ENGLISH)]]))[0]
    targets = torch.tensor([*ids(ENGLISH), EOS])
    loss = cross_entropy(hidden, specimen.output.weight, specimen.output.bias, targets) / len(targets)
    with Translator.load(engine="torch") as translator:
        found = translator.results(JANE, attention=True, token_probabilities=True)
    return {
        "french": " ".join(FRENCH),
        "english": " ".join(ENGLISH),
        "thinking": " ".join(THINKING),
        "n_words": len(LEXICON),
        "one_in": loss.exp(),
        "found": found,
        "looked_at": looked_at(found),
        "memory": specimen.encode(torch.tensor([ids(THINKING)])).states,
    }
