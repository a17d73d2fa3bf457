"""Rows 21 to 24: how the whole is trained, its sizes, and the sentences it is for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from glassformer.config import PRESETS, ModelConfig, SearchConfig, TrainingConfig, preset
from glassformer.data.batches import collate
from glassformer.model.attention import MultiHeadAttention
from glassformer.model.trace import look
from glassformer.model.transformer import Transformer
from glassformer.notes.note import Note, Shown
from glassformer.notes.specimen import ENGLISH, FRENCH, LEXICON, THINKING, ids, model, seeded
from glassformer.report.demo import JANE, looked_at
from glassformer.report.terminal import bar, table, tiny
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
    """The loss of one sentence: all places in one pass, and step by step."""

    one_pass: float
    steps: list[float]

    @property
    def error(self) -> float:
        """How far the sum of the steps is from the one pass."""
        return abs(self.one_pass - sum(self.steps))


def loss_both_ways() -> Loss:
    """Train nothing, but compute what training would: the cross-entropy of the right words."""
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


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread, so that neighbours on this machine disturb the measurement less."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def time_both(lengths: tuple[int, ...], width: int = 64, seconds: float = 1.5) -> list[Timing]:
    """Time nn.GRU and our self-attention in training, the best of several runs; about `seconds` in all."""
    with seeded(21), _one_thread(), torch.enable_grad():
        gru = nn.GRU(width, width, batch_first=True)
        attention = MultiHeadAttention(ModelConfig(d_model=width, n_heads=8))
        share = seconds / (2 * len(lengths))

        def recur(x: Tensor) -> Tensor:
            states: Tensor = gru(x)[0]
            return states

        def attend(x: Tensor) -> Tensor:
            read: Tensor = attention(*attention.query_and_memory(x))
            return read

        inputs = [torch.randn(1, length, width) for length in lengths]
        return [Timing(x.size(1), _best(recur, x, share), _best(attend, x, share)) for x in inputs]


def _best(layer: Callable[[Tensor], Tensor], x: Tensor, seconds: float) -> float:
    """Give the fastest of the passes that fit into `seconds`, of two at least."""
    deadline = time.perf_counter() + seconds
    fastest = _pass(layer, x)
    while True:
        fastest = min(fastest, _pass(layer, x))
        if time.perf_counter() > deadline:
            return fastest


def _pass(layer: Callable[[Tensor], Tensor], x: Tensor) -> float:
    begin = time.perf_counter()
    torch.autograd.backward(layer(x).sum())
    return time.perf_counter() - begin


def _show_parallel() -> Shown:
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
    ratios = ", ".join(f"{t.gru / t.attention:.1f} at length {t.length}" for t in timings)
    return (
        "Teacher forcing: at each place the decoder reads the right words so far, whatever it would have said itself."
        " So all places can be computed in one pass.",
        table(("reads (and all before)", "must say", "-log p"), steps),
        f"The steps sum to {sum(loss.steps):.6f}; one pass over the whole sentence gives {loss.one_pass:.6f}. They"
        f" differ by {tiny(loss.error)}.",
        "And the time: one training pass (forward and backward) over one sequence of width 64, on one thread of this"
        " machine, just now. In a row: steps that must wait for each other.",
        table(("length", "layer", "ms", "in a row", ""), rows),
        f"How many times as long the GRU took: {ratios}. It waits for each word's state before it can begin the next."
        " Attention compares length² pairs, which at great length is more arithmetic, but no pair waits for another.",
    )


def count(config: ModelConfig) -> int:
    """Count the numbers that a model learns, without making any of them."""
    with torch.device("meta"):
        empty = Transformer(config)
    return sum(parameter.numel() for parameter in empty.parameters())


class Learned(NamedTuple):
    """What the pocket model says of each phrase after some updates."""

    updates: int
    loss: float  # a token
    said: list[str]


def learn_phrases(marks: tuple[int, ...] = (0, 20, 200)) -> list[Learned]:
    """Train the pocket model on all phrases at once, and ask it after so many updates."""
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


def _show_pocket() -> Shown:
    config = preset("pocket", vocab=len(LEXICON), max_positions=64)
    with seeded(22):
        pocket = Transformer(config).double().eval().requires_grad_(False)
    trace = look(pocket, ids(FRENCH), [pocket.start_id])
    stages = (
        ("word embedding", "enc.embedding"),
        ("position", "enc.position"),
        ("their sum", "enc.sum"),
        ("self-attention", "enc.0.self.output"),
        ("residual", "enc.0.add1.sum"),
    )
    shapes = [(name, address, "×".join(map(str, trace.entry(address).shape))) for name, address in stages]
    width, vocab = config.d_model, config.tgt_vocab
    n_attentions = sum(isinstance(part, MultiHeadAttention) for part in pocket.modules())
    attention = 4 * width * width + 4 * width
    absent = [part for part in ("norm", "ff") if not any(f".{part}" in address for address in trace)]
    return (
        "The stages of its encoder, with the shapes that five words take:",
        table(("stage", "address", "shape"), shapes),
        f"Of {len(trace)} tensors in a whole pass, none belongs to: {', '.join(absent)}. It starts with"
        f" {LEXICON[pocket.start_id]}.",
        table(
            ("", "numbers to learn"),
            [
                (f"one table of {vocab} words by {width}", f"{vocab * width:,}"),
                (f"{n_attentions} attentions of 4 × {width}² + 4 × {width}", f"{n_attentions * attention:,}"),
                ("the model, counted", f"{sum(parameter.numel() for parameter in pocket.parameters()):,}"),
            ],
        ),
        *_show_learning(),
    )


def _show_learning() -> Shown:
    learned = learn_phrases()
    header = ("", *(f"after {each.updates} updates" for each in learned))
    rows = [("loss a token", *(f"{each.loss:.3f}" for each in learned))]
    rows += [(phrase, *(each.said[i] for each in learned)) for i, phrase in enumerate(PHRASES)]
    return (
        f"And it learns: a pocket model of its own, trained just now on {len(PHRASES)} phrases by heart.",
        table(header, rows),
    )


def _show_presets() -> Shown:
    rows = []
    for name in PRESETS:
        config = preset(name)
        layers = f"{config.n_encoder_layers}+{config.n_decoder_layers}"
        sizes = (layers, f"{config.d_model}", f"{config.n_heads}", f"{config.d_ff:,}")
        said = f"{PAPER_MILLIONS[name]} million" if name in PAPER_MILLIONS else ""
        rows.append((name, *sizes, f"{count(config):,}", said))
    config = ModelConfig()
    shipped = read_config(DEFAULT_MODEL)
    return (
        f"With the paper's shared vocabulary of {config.src_vocab:,}, one table for all, no output bias:",
        table(("preset", "layers", "d_model", "heads", "d_ff", "parameters", "the paper prints"), rows),
        "base and big have the paper's sizes. Our counts are exact for this vocabulary; the paper rounds its own, and"
        " 65 and 213 million are near, not equal. tiny and small are for small corpora and for your own machine.",
        f"All but pocket frame a sentence as <SOS> … <EOS> (start_token = {config.start_token!r}) and have norms and"
        " feed-forward networks.",
        f"{DEFAULT_MODEL}, which comes with glassformer, is small with {shipped.model.n_encoder_layers} layers in the"
        f" encoder and {shipped.model.n_decoder_layers} in the decoder: {count(shipped.model):,} numbers, learned from"
        f" {shipped.about.training['tokens']:,} tokens of French and English.",
    )


def _show_sentences() -> Shown:
    specimen = model(24)
    hidden = specimen.hidden(torch.tensor([ids(FRENCH)]), torch.tensor([[specimen.start_id, *ids(ENGLISH)]]))[0]
    targets = torch.tensor([*ids(ENGLISH), EOS])
    loss = cross_entropy(hidden, specimen.output.weight, specimen.output.bias, targets) / len(targets)
    memory = specimen.encode(torch.tensor([ids(THINKING)])).states
    with Translator.load(engine="torch") as translator:
        found = translator.results(JANE, attention=True, token_probabilities=True)
    return (
        table(
            (),
            [
                ("French (notes 001)", " ".join(FRENCH)),
                ("English", " ".join(ENGLISH)),
                ("to encode (notes 004)", " ".join(THINKING)),
            ],
        ),
        f"Before any training, a small model over the {len(LEXICON)} words of these rows finds each word of the right"
        f" translation as likely as one in {loss.exp():.0f} on average; blind guessing is one in {len(LEXICON)}."
        " Training turns that number down.",
        f"The model that comes with glassformer, trained on some hundred thousand sentence pairs, says it just now:"
        f" {found.src} → {found.text}, {found.confidence:.0%} sure. What each of its words looked at:",
        looked_at(found),
        f'"{" ".join(THINKING)}" comes out of its encoder as {memory.size(1)} vectors of {memory.size(2)} numbers; row'
        " 7 follows the first word's scores.",
    )


NOTES = (
    Note(
        number=21,
        title="Trained in parallel",
        sources="notes 001 and 002",
        idea="A recurrent network such as a GRU must finish one word before it can read the next. A Transformer, given"
        " the right translation shifted by one place and a mask, computes the loss of every place in a single pass.",
        formula="loss = Σₜ -log p(yₜ | y₁ … yₜ₋₁, source)",
        code=(Transformer.forward, cross_entropy, MultiHeadAttention.forward),
        work=_show_parallel,
    ),
    Note(
        number=22,
        title="The small Transformer of notes 002",
        sources="notes 002",
        idea="Four ideas are enough for a Transformer: embedding, position, attention, residual. Notes 002 build one of"
        " one layer, without norm or feed-forward network, that starts with <EOS>. Here it is the preset pocket.",
        formula='preset("pocket")',
        code=(preset, Transformer),
        work=_show_pocket,
    ),
    Note(
        number=23,
        title="The full Transformer and its sizes",
        sources="notes 001, 003 and 004; the sizes from the paper, Table 3",
        idea="N layers on either side, 8 heads, norms, feed-forward networks, <SOS> … <EOS>: one class builds every"
        " size from its settings, and a preset is a name for a set of them.",
        formula='Transformer(preset("base"))',
        code=(preset, ModelConfig, Transformer),
        work=_show_presets,
    ),
    Note(
        number=24,
        title="Jane visits Africa in September",
        sources="notes 001 and 004",
        idea="The sentences through which the notes explain the model: one to translate, and one of two words whose"
        " scores are worked out by hand.",
        formula="Jane visite l'Afrique en septembre → Jane visits Africa in September",
        code=(Transformer,),
        work=_show_sentences,
    ),
)
