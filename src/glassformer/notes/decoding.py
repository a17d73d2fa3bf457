"""Rows 16 to 20: the decoder writes, word by word, what the encoder has read."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import torch
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.model.operations import softmax
from glassformer.model.scope import Scope
from glassformer.model.trace import Intervention, look, skip
from glassformer.notes.note import Slots
from glassformer.notes.specimen import ENGLISH, FRENCH, LEXICON, Notebook, gap, ids, model, picture, seen, traced, words
from glassformer.report.terminal import bar, bars, table
from glassformer.search.beam import beam_search
from glassformer.search.hypotheses import Hypotheses
from glassformer.text.vocab import PAD

_PREFIX: Final = ("<sos>", *ENGLISH)  # what a decoder reads when it has written the whole sentence


def future(*interventions: Intervention) -> list[float]:
    """Change the last word that a decoder reads; return how much the logits change at each position."""
    specimen = model(16, gain=2.0)
    first, second = (
        seen(traced(specimen, FRENCH, (*_PREFIX[:-1], last), *interventions), "out.logits")
        for last in (ENGLISH[-1], "raccoon")
    )
    return (first - second).abs().amax(dim=-1).tolist()


def decoder() -> Slots:
    trace = traced(model(16, gain=2.0), FRENCH, _PREFIX)
    finished = {address.split(".")[2]: place for place, address in enumerate(trace) if address.startswith("dec.0.")}
    weights, masked = (seen(trace, f"dec.0.self.h0.{name}") for name in ("weights", "masked"))
    visible = weights.masked_fill(masked == -math.inf, math.nan)
    changes = zip(_PREFIX, future(), future(skip("dec.*.self.masked")), strict=True)
    rows = [(word, f"{seeing:.4f}" if seeing else "0", f"{without:.4f}") for word, seeing, without in changes]
    return {
        "parts": " → ".join(sorted(finished, key=finished.__getitem__)),
        "weights": picture(visible, _PREFIX, _PREFIX),
        "last": _PREFIX[-1],
        "changes": table(("position", "with the mask", "without it"), rows),
    }


def projections(n_steps: int) -> tuple[Notebook, bool]:
    """Decode `n_steps` tokens one by one; return also whether the state kept the very tensors of the source."""
    specimen = model(17, gain=2.0)
    notebook = Notebook()
    scope = Scope(notebook)
    state = specimen.start(specimen.encode(torch.tensor([ids(FRENCH)])), scope)
    first = state.source
    for token in ids(_PREFIX[:n_steps]):
        _, state = specimen.step(torch.tensor([[token]]), state, scope)
    return notebook, state.source is first


def cross_attention() -> Slots:
    trace = traced(model(17, gain=2.0), FRENCH, _PREFIX)
    notebook, same = projections(len(_PREFIX))
    return {
        "inputs": {name: ", ".join(trace.entry(f"dec.0.cross.{name}").inputs) for name in "qkv"},
        "weights": picture(seen(trace, "dec.0.cross.h0.weights"), _PREFIX, FRENCH),
        "n_steps": len(_PREFIX),
        "times": {name: notebook.times(f"dec.0.cross.{name}") for name in ("k", "v", "q", "weights")},
        "same": same,
    }


def output() -> Slots:
    specimen = model(18, gain=2.0)
    trace = traced(specimen, FRENCH, _PREFIX)
    asked, shown = 2, 5
    logits, probabilities = (seen(trace, f"out.{name}")[asked] for name in ("logits", "probabilities"))
    order = logits.argsort(descending=True)
    top = [
        (LEXICON[word], f"{logits[word]:.2f}", f"{probabilities[word]:.4f}", bar(probabilities[word].item(), 1.0))
        for word in order[:shown].tolist()
    ]
    rest = probabilities[order[shown:]].sum().item()
    others = (f"{len(LEXICON) - shown} others", "", f"{rest:.4f}", bar(rest, 1.0))
    sums = seen(trace, "out.probabilities").sum(dim=-1)
    return {
        "so_far": " ".join(_PREFIX[: asked + 1]),
        "n_words": len(LEXICON),
        "top": table(("word", "logit", "probability", ""), [*top, others]),
        "n_positions": len(sums),
        "error": gap(sums, torch.ones_like(sums)),
        "size": specimen.output.weight.numel(),
        "tie": specimen.config.tie,
        "shared": specimen.output.weight is specimen.tgt_embedding.table,
    }


def start_tokens() -> dict[str, tuple[int, Tensor]]:
    """Return, for each setting of `start_token`, its id and the probabilities (V,) of the first word."""
    found = {}
    for name in ("bos", "eos"):
        specimen = model(19, gain=2.0, start_token=name)
        logits = specimen.decode(torch.tensor([[specimen.start_id]]), specimen.encode(torch.tensor([ids(FRENCH)])))
        found[name] = (specimen.start_id, softmax(logits)[0, 0])
    return found


def start() -> Slots:
    rows = [
        (f"start_token = {name!r}", f"{token}", LEXICON[token], LEXICON[int(first.argmax())], f"{first.max():.4f}")
        for name, (token, first) in start_tokens().items()
    ]
    shifted = {"reads": _PREFIX, "says": (*ENGLISH, "<eos>")}
    return {
        "starts": table(("setting", "id", "token", "likeliest first word", "probability"), rows),
        "shifted": table((), [(verb, " ".join(word.ljust(9) for word in said)) for verb, said in shifted.items()]),
    }


class Search(NamedTuple):
    """What greedy search and a beam found for one sentence, and what the model itself says about it."""

    greedy: Hypotheses
    beam: Hypotheses
    cut: Hypotheses  # greedy, stopped by the length limit
    steps: Tensor  # (T,) log-probability of each token of greedy search, computed again
    asked_again: Tensor  # (W,) log-probability of each hypothesis of the beam, computed again


def search() -> Search:
    """Translate with a model of random weights and louder outputs, without length penalty."""
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


def greedy_and_beam() -> Slots:
    found = search()
    width, best = found.beam.tokens.size(1), found.beam.log_probs[0]
    greedy = zip(words(_tokens(found.greedy, 0)), found.steps.exp().tolist(), strict=True)
    hypotheses = [
        (f"{rank + 1}", " ".join(words(_tokens(found.beam, rank))), f"{best[rank]:.4f}") for rank in range(width)
    ]
    lead = (best[0] - found.greedy.log_probs[0, 0]).item()
    return {
        "sentence": " ".join(FRENCH),
        "steps": bars({f"{n}  {word}": probability for n, (word, probability) in enumerate(greedy, 1)}),
        "product": found.steps.sum(),
        "score": found.greedy.log_probs[0, 0],
        "width": width,
        "hypotheses": table(("", "hypothesis", "log-probability"), hypotheses),
        "lead": lead,
        "times": math.exp(lead),
        "error": gap(best, found.asked_again),
        "limit": found.cut.tokens.size(2),
        "cut": " ".join(words(_tokens(found.cut, 0))),
        "ended": found.cut.ended.item(),
    }
