"""One engine, and a second one for the requests that the first does not support."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from glassformer.errors import ConfigError
from glassformer.translate.engines.engine import Engine, IdHypothesis, Request, Source, run_in_thread

if TYPE_CHECKING:
    from glassformer.model.transformer import Transformer

_log = logging.getLogger(__name__)


class Engines:
    """Runs each request with the first engine, or with the fallback, which is made when it is needed."""

    def __init__(self, first: Engine, make_fallback: Callable[[], Engine] | None = None) -> None:
        self.first = first
        self._make_fallback = make_fallback
        self._fallback: Engine | None = None
        self._remarks: set[str] = set()
        self._process: int | None = os.getpid()

    def run(self, sources: Sequence[Source], request: Request) -> list[list[IdHypothesis]]:
        """Return the hypotheses of each source, best first; where nothing is found, the translation is empty."""
        if not sources:
            return []
        if self._process is None:
            raise ConfigError("this Translator is closed: load another one")
        if self._process != os.getpid():
            raise ConfigError(
                "this Translator was loaded before the process forked, which left its threads behind: "
                "load one in each process, or start processes by spawn"
            )
        engine = self.choose(request)
        answers = engine.translate(sources, request)
        if engine is not self.first:
            answers = iter(run_in_thread(partial(list, answers)))
        found = dict(answers)
        nothing = [IdHypothesis([], -math.inf, -math.inf, False)]
        return [found.get(number) or nothing for number in range(len(sources))]

    def choose(self, request: Request) -> Engine:
        """Return the engine that runs a request."""
        reason = self.first.refuses(request)
        if reason is None:
            return self.first
        if self._make_fallback is None:
            raise ConfigError(f"the engine {self.first.name} does not support {reason}")
        if self._fallback is None:
            self._fallback = run_in_thread(self._make_fallback)
        self.remark(f"{self.first.name} does not support {reason}; falling back to {self._fallback.name}")
        reason = self._fallback.refuses(request)
        if reason is not None:
            raise ConfigError(f"no engine supports {reason}")
        return self._fallback

    def model(self) -> Transformer:
        """Return the torch model, whichever engine runs with its weights."""
        from glassformer.translate.engines.torch import TorchEngine

        if not isinstance(self.first, TorchEngine) and self._fallback is None and self._make_fallback is not None:
            self._fallback = self._make_fallback()
        for engine in (self.first, self._fallback):
            if isinstance(engine, TorchEngine) and len(engine.models) == 1:
                return engine.models[0]
        raise ConfigError("an ensemble cannot be explained: load one model")

    def remark(self, message: str) -> None:
        """Log a warning once."""
        if message not in self._remarks:
            self._remarks.add(message)
            _log.warning("%s", message)

    def close(self) -> None:
        """Release threads and memory."""
        self._process = None
        self.first.close()
        if self._fallback is not None:
            self._fallback.close()
