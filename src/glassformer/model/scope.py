"""How the model is traced: modules name their tensors to a scope, which passes them to a recorder.

A `Scope` holds the place in the model (`enc.1.self`) and the recorder. A blind scope has no recorder:
modules then take their fused path, and nothing is named, kept or slowed down.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import Tensor

from glassformer.model.operations import Function


class Call(NamedTuple):
    """A tensor that a module is about to compute."""

    address: str
    operation: Function
    inputs: tuple[Tensor, ...]
    constants: Mapping[str, Any]
    axes: tuple[str, ...]  # without the batch
    code: str  # module:line

    def compute(self) -> Tensor:
        """Compute it."""
        return self.operation(*self.inputs, **self.constants)


Recorder = Callable[[Call], Tensor]  # computes what is named, and returns the tensor that the model continues with


@dataclass(frozen=True)
class Scope:
    """A place in the model and the recorder that observes it, if any."""

    recorder: Recorder | None
    prefix: str = ""
    rows: str = ""  # the axis of positions: src or tgt
    keys: str = ""  # the axis of what attention reads from

    @property
    def looking(self) -> bool:
        """Whether a recorder is attached."""
        return self.recorder is not None

    def __truediv__(self, part: str | int) -> Scope:
        """Return the scope one name deeper."""
        return self if self.recorder is None else replace(self, prefix=f"{self.prefix}{part}.")

    def side(self, name: str, rows: str) -> Scope:
        """Enter one side of the model (enc, dec or out), whose positions are `rows` (src or tgt)."""
        return self if self.recorder is None else replace(self, prefix=f"{name}.", rows=rows)

    def reading(self, keys: str) -> Scope:
        """Set which positions attention reads from."""
        return self if self.recorder is None else replace(self, keys=keys)

    def __call__(
        self, name: str, operation: Function, *inputs: Tensor, axes: tuple[str, ...], **constants: Any
    ) -> Tensor:
        """Compute a named tensor (B, *axes) by a named operation."""
        assert self.recorder is not None, "a blind scope records nothing: ask scope.looking first"
        caller = sys._getframe(1)
        code = f"{caller.f_globals['__name__']}:{caller.f_lineno}"
        return self.recorder(Call(self.prefix + name, operation, inputs, constants, axes, code))


BLIND = Scope(None)
