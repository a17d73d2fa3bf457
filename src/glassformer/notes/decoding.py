"""Rows 16 to 20: the decoder writes, word by word, what the encoder has read."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.config import ModelConfig, SearchConfig
from glassformer.model.decoder import Decoder, DecoderLayer
from glassformer.model.layers import Output
from glassformer.model.operations import mask, softmax
from glassformer.model.scope import Scope
from glassformer.model.state import DecoderState
from glassformer.model.trace import Intervention, look, skip
from glassformer.model.transformer import Transformer
from glassformer.notes.note import Note, Shown
from glassformer.notes.specimen import ENGLISH, FRENCH, LEXICON, Notebook, gap, ids, model, seen, words
from glassformer.report.terminal import bar, bars, heat_map, table, tiny
from glassformer.search.beam import beam_search
from glassformer.search.hypotheses import Hypotheses
from glassformer.text.vocab import PAD

_PREFIX = ("<sos>", *ENGLISH)  # what a decoder reads when it has written the whole sentence


def future(*interventions: Intervention) -> list[float]:
    """Change the last word that a decoder reads; say how much the logits at each place change."""
    specimen = model(16, gain=2.0)
    one, other = ids(_PREFIX), ids((*_PREFIX[:-1], "raccoon"))
    first, second = (seen(look(specimen, ids(FRENCH), tgt, interventions), "out.logits") for tgt in (one, other))
    return (first - second).abs().amax(dim=-1).tolist()


def _show_decoder() -> Shown:
    specimen = model(16, gain=2.0)
    trace = look(specimen, ids(FRENCH), ids(_PREFIX))
    finished = {address.split(".")[2]: place for place, address in enumerate(trace) if address.startswith("dec.0.")}
    parts = sorted(finished, key=finished.__getitem__)
    weights, masked = (seen(trace, f"dec.0.self.h0.{name}") for name in ("weights", "masked"))
    visible = weights.masked_fill(masked == -math.inf, math.nan)
    changes = zip(_PREFIX, future(), future(skip("dec.*.self.masked")), strict=True)
    return (
        "The parts of a decoder layer, in the order in which the trace saw them finish:",
        " → ".join(parts),
        "Masked self-attention, first head: each word reads itself and those before it. Blank: forbidden.",
        heat_map(visible.tolist(), _PREFIX, _PREFIX, low=0, high=1, digits=2, ends=("0", "1")),
        f'Now let the last word be "raccoon" instead of "{_PREFIX[-1]}". How much do the logits at each place change?',
        table(
            ("place", "with the mask", "without it"),
            [(word, f"{seeing:.4f}" if seeing else "0", f"{without:.4f}") for word, seeing, without in changes],
        ),
        "With the mask no word can peek at what comes after it, so the model may be trained on all places at once"
        " (row 21).",
    )


def projections(n_steps: int) -> tuple[Notebook, bool]:
    """Decode `n_steps` tokens one by one; say too whether the state kept the very tensors of the source."""
    specimen = model(17, gain=2.0)
    notebook = Notebook()
    scope = Scope(notebook)
    state = specimen.start(specimen.encode(torch.tensor([ids(FRENCH)])), scope)
    first = state.source
    for token in ids(_PREFIX[:n_steps]):
        _, state = specimen.step(torch.tensor([[token]]), state, scope)
    return notebook, state.source is first


def _show_cross_attention() -> Shown:
    specimen = model(17, gain=2.0)
    trace = look(specimen, ids(FRENCH), ids(_PREFIX))
    notebook, same = projections(len(_PREFIX))
    counted = [
        (f"dec.0.cross.{name}", meaning, f"{notebook.times(f'dec.0.cross.{name}')}")
        for name, meaning in (
            ("k", "keys, from the encoder"),
            ("v", "values, from the encoder"),
            ("q", "query, from the decoder"),
            ("weights", "shares"),
        )
    ]
    sources = [
        (address, ", ".join(trace.entry(address).inputs))
        for address in ("dec.0.cross.q", "dec.0.cross.k", "dec.0.cross.v")
    ]
    return (
        "Where each tensor came from, read off the trace:",
        table(("tensor", "made from"), sources),
        "English words (down) read French ones (across), first head:",
        heat_map(
            seen(trace, "dec.0.cross.h0.weights").tolist(), _PREFIX, FRENCH, low=0, high=1, digits=2, ends=("0", "1")
        ),
        f"Decoding {len(_PREFIX)} tokens one by one, how often was each computed?",
        table(("tensor", "", "times"), counted),
        f"The keys and values that the last step read are {'the very tensors' if same else 'not the tensors'} of the"
        " first. And the weights are the layer's own: self-attention and encoder-decoder attention share none.",
    )


def _show_output() -> Shown:
    specimen = model(18, gain=2.0)
    trace = look(specimen, ids(FRENCH), ids(_PREFIX))
    asked = 2
    logits, probabilities = (seen(trace, f"out.{name}")[asked] for name in ("logits", "probabilities"))
    order = logits.argsort(descending=True)
    top = [
        (LEXICON[word], f"{logits[word]:.2f}", f"{probabilities[word]:.4f}", bar(probabilities[word].item(), 1.0))
        for word in order[:5].tolist()
    ]
    rest = probabilities[order[5:]].sum().item()
    sums = seen(trace, "out.probabilities").sum(dim=-1)
    return (
        f'After "{" ".join(_PREFIX[: asked + 1])}", {len(LEXICON)} words stand to choose from:',
        table(
            ("word", "logit", "probability", ""),
            [*top, (f"{len(LEXICON) - 5} others", "", f"{rest:.4f}", bar(rest, 1.0))],
        ),
        f"At each of the {len(sums)} places the probabilities sum to 1; the largest error is"
        f" {tiny(gap(sums, torch.ones_like(sums)))}.",
        f"A logit is the dot product of the decoder's last vector with the word's row. These are the embedding's own"
        f" rows: one table of {specimen.output.weight.numel():,} numbers reads and writes ({_shared(specimen)}).",
    )


def _shared(specimen: Transformer) -> str:
    is_shared = specimen.output.weight is specimen.tgt_embedding.table
    return f"tie = {specimen.config.tie!r}, the same tensor: {is_shared}"


def start_tokens() -> dict[str, tuple[int, Tensor]]:
    """Give, for each start token that the notes use, its id and the probabilities (V,) of the first word."""
    found = {}
    for name in ("bos", "eos"):
        specimen = model(19, gain=2.0, start_token=name)
        logits = specimen.decode(torch.tensor([[specimen.start_id]]), specimen.encode(torch.tensor([ids(FRENCH)])))
        found[name] = (specimen.start_id, softmax(logits)[0, 0])
    return found


def _show_start() -> Shown:
    rows = [
        (f"start_token = {name!r}", f"{token}", LEXICON[token], LEXICON[int(first.argmax())], f"{first.max():.4f}")
        for name, (token, first) in start_tokens().items()
    ]
    return (
        "One set of weights, two ways to begin; before training the first word is anybody's guess:",
        table(("setting", "id", "token", "likeliest first word", "probability"), rows),
        "In training the decoder reads the sentence one place late, and must say the next word at each place:",
        table(
            (),
            [
                ("reads", " ".join(word.ljust(9) for word in _PREFIX)),
                ("says", " ".join(word.ljust(9) for word in (*ENGLISH, "<eos>"))),
            ],
        ),
    )


class Search(NamedTuple):
    """What greedy search and a beam found for one sentence, and what the model itself says to it."""

    greedy: Hypotheses
    beam: Hypotheses
    cut: Hypotheses  # greedy, stopped by the length limit
    steps: Tensor  # (T,) log-probability of each token of greedy search, asked again
    asked_again: Tensor  # (W,) log-probability of each hypothesis of the beam, asked again


def search() -> Search:
    """Translate by a model with random weights, louder outputs, and no length penalty."""
    specimen = model(71, gain=2.0, tie="none", n_encoder_layers=1, n_decoder_layers=1)
    specimen.output.weight.mul_(2.5)
    memory, start = specimen.encode(torch.tensor([ids(FRENCH)])), torch.tensor([specimen.start_id])

    def run(width: int, max_length: int) -> Hypotheses:
        config = SearchConfig(width=width, max_length=max_length, length_penalty=0.0)
        return beam_search(specimen.step, specimen.start(memory), start, config)

    def ask(tokens: list[int]) -> Tensor:
        log_probs = seen(look(specimen, ids(FRENCH), [specimen.start_id, *tokens[:-1]]), "out.log_probs")
        return log_probs[range(len(tokens)), tokens]

    greedy, beam = run(1, 12), run(4, 12)
    asked_again = torch.stack([ask(_tokens(beam, rank)).sum() for rank in range(beam.tokens.size(1))])
    return Search(greedy, beam, run(1, 2), ask(_tokens(greedy, 0)), asked_again)


def _tokens(found: Hypotheses, rank: int) -> list[int]:
    return [token for token in found.tokens[0, rank].tolist() if token != PAD]


def _show_search() -> Shown:
    found = search()
    greedy = words(_tokens(found.greedy, 0))
    hypotheses = [
        (f"{rank + 1}", " ".join(words(_tokens(found.beam, rank))), f"{found.beam.log_probs[0, rank]:.4f}")
        for rank in range(found.beam.tokens.size(1))
    ]
    lead = (found.beam.log_probs[0, 0] - found.greedy.log_probs[0, 0]).item()
    return (
        f'"{" ".join(FRENCH)}" by a model that has learned nothing, so only the search makes sense. Greedy: the'
        " likeliest word at each step, until <eos>.",
        bars(
            {f"{n + 1}  {word}": p for n, (word, p) in enumerate(zip(greedy, found.steps.exp().tolist(), strict=True))}
        ),
        f"The product of these is exp({found.steps.sum():.4f}); the search says {found.greedy.log_probs[0, 0]:.4f}.",
        f"A beam keeps the best {found.beam.tokens.size(1)} beginnings at each step:",
        table(("", "hypothesis", "log-probability"), hypotheses),
        f"Its best is likelier than the greedy one, e^{lead:.2f} = {math.exp(lead):.1f} times: a good first word can"
        " lead to a bad sentence, and greedy search cannot go back.",
        f"Asked again without search, the model gives the four the same log-probabilities: they differ by"
        f" {tiny(gap(found.beam.log_probs[0], found.asked_again))}.",
        f"And a guard for models that never end: max_length = {found.cut.tokens.size(2)} stops at"
        f' "{" ".join(words(_tokens(found.cut, 0)))}", and says that it was cut (ended: {found.cut.ended.item()}).',
    )


NOTES = (
    Note(
        number=16,
        title="The decoder and its mask",
        sources="notes 001, 002 and 004; the mask from the paper, section 3.2.3",
        idea="The decoder's layer has three sublayers: self-attention over what has been written, attention over the"
        " source, and the feed-forward network, each with residual and norm. A mask hides the words that come later,"
        " because when the model writes they do not exist yet.",
        formula="scores[t, s] = -∞  where s > t,  so that  softmax gives weight 0",
        code=(DecoderLayer, Decoder, mask),
        work=_show_decoder,
    ),
    Note(
        number=17,
        title="Encoder-decoder attention",
        sources="notes 002 and 004",
        idea="Here the two halves meet: the query comes from the word being written, keys and values from what the"
        " encoder made of the source. The source does not change while the translation grows, so its keys and values"
        " are computed once for each sentence.",
        formula="Q = x W_Q  (decoder)     K = memory W_K,  V = memory W_V  (encoder)",
        code=(DecoderLayer, Decoder.start, DecoderState),
        work=_show_cross_attention,
    ),
    Note(
        number=18,
        title="From vectors to words",
        sources="notes 002 and 004",
        idea="A last linear layer gives every word of the vocabulary a score, the logit; softmax turns the logits into"
        " probabilities.",
        formula="p = softmax(W h + b)     Σ p = 1",
        code=(Output, softmax),
        work=_show_output,
    ),
    Note(
        number=19,
        title="How a sentence begins",
        sources="notes 001 (<SOS>) and 002 (<EOS>)",
        idea="Before its first word the decoder needs something to read. Notes 001 give it a start token of its own,"
        " notes 002 the end token of the sentence before. Both are settings; what matters is that training and"
        " translating agree.",
        formula="decoder input = start, y₁, y₂, …     target = y₁, y₂, …, <eos>",
        code=(Transformer.start_id, ModelConfig),
        work=_show_start,
    ),
    Note(
        number=20,
        title="Word by word until <eos>",
        sources="notes 001, 002 and 004",
        idea="The likeliest word is written down and read again, and so on until the end token comes out. Taking the"
        " best word each time is greedy; a beam follows several beginnings and keeps the best. Greedy search is a beam"
        " of one, and a length limit guards both.",
        formula="greedy: yₜ = argmax p(y | y₁ … yₜ₋₁, source)\nbeam:   argmax Σₜ log p(yₜ | …) among the W best",
        code=(beam_search, SearchConfig),
        work=_show_search,
    ),
)
