"""A recorded translation: every candidate of the beam and its fate, then every tensor of one path.

W beam width, C = 2 * W candidates of a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import torch

from glassformer.config import SearchConfig
from glassformer.errors import AddressError, ConfigError
from glassformer.model.trace import Trace, look
from glassformer.model.transformer import Transformer
from glassformer.search.beam import beam_search
from glassformer.search.choose import Choice
from glassformer.search.penalties import length_penalty
from glassformer.search.rules import make_rules
from glassformer.text.vocab import EOS, PAD

ROOT: Final = 0
_State = Literal["kept", "pruned", "finished", "winner"]


class Node(NamedTuple):
    """A prefix that was a candidate in some step of the search."""

    number: int
    parent: int | None  # None: the start mark
    step: int  # in which it was a candidate; -1 for the start mark
    token: int
    log_prob: float  # of the last token
    total: float  # log-probability of all tokens
    length: int  # tokens, the end mark not counted
    penalty: float  # what the total is divided by
    state: _State = "pruned"
    rank: int = 0  # among the candidates of the step
    lost_by: float | None = None  # pruned: distance to the last total kept; finished: to the winner's score
    is_cut_off: bool = False  # ended by the length limit

    @property
    def score(self) -> float:
        """Return what finished prefixes are ranked by."""
        return self.total / self.penalty


class Tree(NamedTuple):
    """All candidates of a search, the start mark first."""

    nodes: tuple[Node, ...]
    winner: int

    def path(self, number: int) -> list[Node]:
        """Return the nodes from the first token to this one."""
        if not ROOT <= number < len(self.nodes):
            raise AddressError(f"the beam has no node {number}: nodes are 0 to {len(self.nodes) - 1}")
        path: list[Node] = []
        node = self.nodes[number]
        while node.parent is not None:
            path.append(node)
            node = self.nodes[node.parent]
        return path[::-1]

    def tokens(self, number: int) -> list[int]:
        """Return the tokens of a node, the end mark included."""
        return [node.token for node in self.path(number)]


class Recording(NamedTuple):
    """A source, the search for its translation, and a pass over the tokens of one node of it."""

    src: list[int]  # with end mark
    tree: Tree
    node: int  # the one whose tokens the trace reads
    trace: Trace
    search: SearchConfig
    forced: Mapping[int, int]  # step: token

    @property
    def tokens(self) -> list[int]:
        """Return the written tokens, the end mark included; row t of the trace predicts token t."""
        return self.tree.tokens(self.node)


def record(
    model: Transformer,
    src: Sequence[int],
    search: SearchConfig,
    forced: Mapping[int, int] | None = None,
    node: int | None = None,
) -> Recording:
    """Search for a translation of `src` (without end mark), then trace the winner, or another node.

    The winner is traced by teacher forcing: because of the causal mask, row t is what step t computed.
    """
    source, forced = [*src, EOS], dict(forced or {})
    longest = model.config.max_positions
    if len(source) > longest:
        raise ConfigError(f"the sentence has {len(source)} tokens with its end mark; the model reads at most {longest}")
    search = search.model_copy(update={"max_length": min(search.max_length, longest)})
    tree = grow(model, source, search, forced)
    shown = tree.winner if node is None else node
    return Recording(source, tree, shown, trace_node(model, source, tree, shown), search, forced)


def trace_node(model: Transformer, src: Sequence[int], tree: Tree, node: int) -> Trace:
    """Return every tensor of a pass over the tokens of one node."""
    tokens = tree.tokens(node)
    if not tokens:
        raise AddressError("node 0 is the start mark, which has no tensors: nodes count from 1")
    return look(model, src, [model.start_id, *tokens[:-1]])


def grow(model: Transformer, src: Sequence[int], search: SearchConfig, forced: Mapping[int, int]) -> Tree:
    """Run `beam_search` and keep the candidates of each step."""
    _check(model, search, forced)
    device = model.output.weight.device
    prefix = [forced.get(step, PAD) for step in range(max(forced, default=-1) + 1)]  # PAD leaves a step free
    rules = make_rules(search, device, prefixes=[prefix])
    choices: list[Choice] = []
    with torch.inference_mode():
        state = model.start(model.encode(torch.tensor([list(src)], device=device)))
        start = torch.tensor([model.start_id], device=device)
        found = beam_search(model.step, state, start, search, rules=rules, watch=choices.append)
    nodes = [Node(ROOT, None, -1, model.start_id, 0.0, 0.0, 0, 1.0, "kept")]
    prefixes = [ROOT]
    for step, choice in enumerate(choices):
        candidates = _candidates(choice, step, nodes, prefixes, search)
        going = choice.going[0].tolist()
        nodes += [node for node in candidates if node is not None]
        prefixes = [node.number if (node := candidates[i]) is not None else -1 for i in going]
    best = [token for token in found.tokens[0, 0].tolist() if token != PAD]
    tree = Tree(tuple(nodes), ROOT)
    finished = [node for node in nodes if node.state == "finished"]
    winner = next((node for node in finished if tree.tokens(node.number) == best), None)
    if winner is None:
        raise ConfigError("the search found no translation that contains the forced tokens")
    for node in finished:
        lost = node._replace(lost_by=winner.score - node.score)
        nodes[node.number] = node._replace(state="winner") if node is winner else lost
    return Tree(tuple(nodes), winner.number)


def _candidates(
    choice: Choice, step: int, nodes: Sequence[Node], prefixes: Sequence[int], search: SearchConfig
) -> list[Node | None]:
    """Return the candidates of a step as nodes, in order; None for an impossible one."""
    totals, parents, tokens, ends = (part[0].tolist() for part in choice[:4])
    going = choice.going[0].tolist()
    last_going = min(totals[i] for i in going)
    last_ending = totals[search.width - 1]  # only the first W may end
    candidates: list[Node | None] = []
    number = len(nodes)
    for rank, (total, row, token) in enumerate(zip(totals, parents, tokens, strict=True)):
        if total == -math.inf:
            candidates.append(None)
            continue
        parent = nodes[prefixes[row]]
        length = step + (token != EOS)
        penalty = length_penalty(torch.tensor(float(length)), search).item()
        node = Node(number, parent.number, step, token, total - parent.total, total, length, penalty, rank=rank)
        if ends[rank]:
            node = node._replace(state="finished", is_cut_off=token != EOS)
        elif rank in going:
            node = node._replace(state="kept")
        else:
            node = node._replace(lost_by=(last_ending if token == EOS else last_going) - total)
        candidates.append(node)
        number += 1
    return candidates


def _check(model: Transformer, search: SearchConfig, forced: Mapping[int, int]) -> None:
    plain = {"method": "beam", "groups": 1, "coverage_penalty": 0.0}
    for name, value in plain.items():
        if getattr(search, name) != value:
            raise ConfigError(f"{name}={getattr(search, name)} cannot be explained: use a plain beam, {name}={value}")
    for step, token in forced.items():
        if not 0 <= step < search.max_length:
            raise ConfigError(f"step {step} cannot be forced: steps are 0 to {search.max_length - 1}")
        if not PAD < token < model.config.tgt_vocab:
            raise ConfigError(f"token {token} cannot be forced: tokens are 1 to {model.config.tgt_vocab - 1}")
