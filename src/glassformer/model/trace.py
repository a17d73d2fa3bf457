"""Tracing: every tensor of a run under its address, with how it was computed, and interventions that change one.

An address is `side.layer.part[.hN].tensor[i,j]`, zero-based and without the batch:
`enc.1.self.h3.weights[2,5]`, `dec.0.cross.q`, `enc.0.norm1.mean`, `out.logits[4]`.
`.hN` selects one head of a stored tensor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import AddressError, ConfigError, nearest
from glassformer.model.operations import OPERATIONS, SKIPPABLE, log_softmax, softmax
from glassformer.model.scope import Call, Scope
from glassformer.model.transformer import Transformer

_SYNTAX = re.compile(r"(?P<name>[\w.*?]+)(?:\[(?P<index>[\d,\s-]+)\])?")
_HEAD = re.compile(r"\.h(\d+)(?=\.)")


class Address(NamedTuple):
    """A parsed address."""

    name: str  # the stored tensor, without head and index
    head: int | None
    places: tuple[int, ...]  # the index in brackets

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse an address; raise if it is not one."""
        match = _SYNTAX.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise AddressError(f"{text!r} is not an address; expected something like enc.1.self.h3.weights[2,5]")
        head = _HEAD.search(match["name"])
        try:
            index = tuple(int(part) for part in match["index"].split(",")) if match["index"] else ()
        except ValueError:
            raise AddressError(f"{text!r}: the index in brackets must be integers separated by commas") from None
        return cls(_HEAD.sub("", match["name"]), int(head[1]) if head else None, index)

    def pick(self, tensor: Tensor, axes: tuple[str, ...]) -> Tensor:
        """Return the part of a stored tensor (B, *axes) that head and index select, as a view."""
        if self.head is not None and axes[0] != "head":
            raise AddressError(f"{self.name} has no heads: its axes are {', '.join(axes)}")
        places = (() if self.head is None else (self.head,)) + self.places
        if len(places) > len(axes):
            raise AddressError(f"{self.name} has the axes {', '.join(axes)}, so {len(places)} indices are too many")
        for place, axis, size in zip(places, axes, tensor.shape[1:], strict=False):
            if not -size <= place < size:
                raise AddressError(
                    f"{self.name} has size {size} along {axis} (0 to {size - 1}); {place} is out of range"
                )
        for place in places:
            tensor = tensor.select(1, place)
        return tensor


@dataclass(frozen=True, eq=False)
class Intervention:
    """A change of every tensor, head or number whose address matches `pattern` (* is any run of characters)."""

    pattern: str
    verb: str  # replace, scale or skip
    amount: float | Tensor = 0.0

    def matches(self, address: str) -> bool:
        """Return whether this change applies to the tensor at `address`."""
        return fnmatchcase(address, Address.parse(self.pattern).name)

    def apply(self, computed: Tensor, call: Call) -> Tensor:
        """Return the tensor that replaces the one (B, *axes) computed by `call`."""
        where, result = Address.parse(self.pattern), computed.clone()
        target = where.pick(result, call.axes)
        if self.verb == "scale":
            target.mul_(self.amount)
        elif self.verb == "replace":
            value = torch.as_tensor(self.amount, dtype=computed.dtype, device=computed.device)
            try:
                target.copy_(value)
            except RuntimeError:
                raise AddressError(
                    f"{self.pattern} has shape {tuple(target.shape[1:])}, its replacement {tuple(value.shape)}"
                ) from None
        elif call.operation.__name__ not in SKIPPABLE:
            raise AddressError(
                f"{self.pattern} cannot be skipped: {call.operation.__name__} changes what its input means; "
                "zero it instead"
            )
        else:
            target.copy_(where.pick(call.inputs[0], call.axes))
        return result


def zero(pattern: str) -> Intervention:
    """Set a tensor, a head or a number to 0: `zero("enc.1.self.h3.context")` switches that head off."""
    return Intervention(pattern, "replace", 0.0)


def scale(pattern: str, factor: float) -> Intervention:
    """Multiply a tensor, a head or a number."""
    return Intervention(pattern, "scale", factor)


def replace(pattern: str, value: float | Tensor) -> Intervention:
    """Replace a tensor, a head or a number by another value."""
    return Intervention(pattern, "replace", value)


def skip(pattern: str) -> Intervention:
    """Skip an operation and use its first input instead: `skip("*.scaled")`, `skip("dec.*.self.masked")`."""
    return Intervention(pattern, "skip")


@dataclass(frozen=True, eq=False)
class Entry:
    """One recorded tensor and how it was computed."""

    address: str
    value: Tensor  # (B, *axes), after interventions
    axes: tuple[str, ...]
    operation: str  # a name in OPERATIONS
    inputs: tuple[str, ...]  # addresses
    constants: Mapping[str, Any]  # weights and numbers, the keyword arguments of the operation
    code: str  # module:line that computed it
    interventions: tuple[Intervention, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes along the axes, without the batch."""
        return tuple(self.value.shape[1:])


@dataclass(frozen=True, eq=False)
class Trace(Mapping[str, "Tensor | float"]):
    """Every tensor of one pass over one sentence pair, by address, in the order of computation."""

    entries: Mapping[str, Entry]

    def __repr__(self) -> str:
        return f"<Trace of {len(self.entries)} tensors, {next(iter(self.entries), '')} .. out.probabilities>"

    def __getitem__(self, address: str) -> Tensor | float:
        """Return the number, row or tensor at an address."""
        entry = self.entry(address)
        found = Address.parse(address).pick(entry.value, entry.axes)[0]
        return found.item() if found.dim() == 0 else found

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def entry(self, address: str) -> Entry:
        """Return the entry of the tensor that an address belongs to."""
        name = Address.parse(address).name
        if name not in self.entries:
            raise AddressError(f"there is no tensor {name}; {_nearest(name, self.entries)}")
        return self.entries[name]

    def recompute(self, address: str) -> Tensor:
        """Recompute a tensor (B, *axes) from its recorded inputs by its recorded operation."""
        entry = self.entry(address)
        inputs = tuple(self.entries[name].value for name in entry.inputs)
        call = Call(entry.address, OPERATIONS[entry.operation], inputs, entry.constants, entry.axes, entry.code)
        return _altered(call, entry.interventions)


def look(
    model: Transformer, src: Sequence[int], tgt: Sequence[int], interventions: Iterable[Intervention] = ()
) -> Trace:
    """Run the model over one source and one target (start id first) and keep every tensor.

    The pass reads the whole target at once; by the causal mask its row t is what step t of a decoder computes.
    """
    if isinstance(interventions, Intervention):
        raise ConfigError("interventions must be a list: look(model, src, tgt, [zero(..)])")
    tracer = _Tracer(tuple(interventions))
    scope = Scope(tracer)
    config, device = model.config, model.output.weight.device
    source, target = (
        _ids(*given, config, device) for given in (("src", src, config.src_vocab), ("tgt", tgt, config.tgt_vocab))
    )
    with torch.no_grad():
        logits = model.decode(target, model.encode(source, scope=scope), scope)
        out = scope.side("out", "tgt")
        out("log_probs", log_softmax, logits, axes=("tgt", "vocab"))
        out("probabilities", softmax, logits, axes=("tgt", "vocab"))
    for change in tracer.interventions:
        if not any(change.matches(address) for address in tracer.entries):
            raise AddressError(f"{change.pattern} matches no tensor; {_nearest(change.pattern, tracer.entries)}")
    return Trace(tracer.entries)


def _ids(name: str, ids: Sequence[int], vocab: int, config: ModelConfig, device: torch.device) -> Tensor:
    """Return the ids of one sequence as a batch of one (1, T); raise if they are not valid."""
    try:
        row = torch.as_tensor(ids, device=device)
    except (TypeError, ValueError, RuntimeError):
        row = torch.zeros(0)
    if row.dim() != 1 or not len(row) or row.is_floating_point():
        raise ConfigError(f"{name} must be one sequence of ids, such as [5, 6, 7, 3]; got {str(ids)[:60]}")
    outside = ((row < 0) | (row >= vocab)).nonzero()
    if len(outside):
        place = int(outside[0])
        raise ConfigError(f"{name}[{place}] is {int(row[place])}; ids of this vocabulary are 0 to {vocab - 1}")
    if config.positions != "none" and len(row) > config.max_positions:
        raise ConfigError(f"{name} has {len(row)} ids; the model reads at most {config.max_positions} (max_positions)")
    return row.unsqueeze(0)


def altering(*interventions: Intervention) -> Scope:
    """Return a scope under which `encode`, `start` and `step` run with interventions; nothing is recorded."""
    return Scope(partial(_altered, interventions=interventions))


def _nearest(name: str, known: Iterable[str]) -> str:
    said = nearest(name, known)
    return said if said.startswith("did") else "iterate over a Trace for its addresses, such as enc.0.self.weights"


def _altered(call: Call, interventions: Iterable[Intervention]) -> Tensor:
    """Compute a tensor and apply the interventions that match its address."""
    computed = call.compute()
    for change in interventions:
        if change.matches(call.address):
            computed = change.apply(computed, call)
    return computed


@dataclass(frozen=True)
class Watcher:
    """A recorder that keeps the tensors whose address matches `pattern`, in order, and no others."""

    pattern: str
    kept: list[Tensor] = field(default_factory=list)

    def __call__(self, call: Call) -> Tensor:
        """Compute a tensor and keep it if its address matches."""
        value = call.compute()
        if fnmatchcase(call.address, self.pattern):
            self.kept.append(value)
        return value


@dataclass(frozen=True)
class _Tracer:
    """Applies interventions and keeps every tensor; recognises an input by object identity."""

    interventions: tuple[Intervention, ...]
    entries: dict[str, Entry] = field(default_factory=dict)
    addresses: dict[int, str] = field(default_factory=dict)  # id of a kept tensor -> its address

    def __call__(self, call: Call) -> Tensor:
        address, operation, inputs, constants, axes, code = call
        assert address not in self.entries, f"{address} was recorded twice"
        concerned = tuple(change for change in self.interventions if change.matches(address))
        value = _altered(call, concerned)
        assert value.dim() == len(axes) + 1, f"{address}: axes {axes} do not fit shape {tuple(value.shape)}"
        names = tuple(self.addresses[id(tensor)] for tensor in inputs)
        self.entries[address] = Entry(address, value, axes, operation.__name__, names, constants, code, concerned)
        self.addresses[id(value)] = address
        return value
