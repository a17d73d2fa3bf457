"""How CTranslate2 runs best here: each setup is measured for speed and accuracy, once per machine.

int8 is not int8: on a CPU without VNNI the usual one is off by 0.08 to 0.13 in log-probability per token, ours (see
`convert.ctranslate2`) by 0.01. A setup that is off by more than 0.02, or finds translations that are less likely by
more than that, is never chosen, however fast.
"""

from __future__ import annotations

import json
import logging
import math
import os
import random
import time
from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Final, NamedTuple

import ctranslate2

from glassformer.config import SearchConfig
from glassformer.convert.ctranslate2 import Quantization, as_quantization, export_folder, fingerprint_of, is_exported
from glassformer.errors import ConfigError, DataError
from glassformer.files import write_text
from glassformer.model.fast.device import cpu_name
from glassformer.store.folder import EXAMPLES, load_model, read_config
from glassformer.store.registry import SHIPPED, find_model
from glassformer.text.tokenizer import Tokenizers
from glassformer.text.vocab import SPECIAL
from glassformer.translate.engines.ctranslate2 import CTranslate2Engine, Setup
from glassformer.translate.engines.engine import IdHypothesis, Request, Source, run_in_thread
from glassformer.translate.score import log_probs_of

_MAX_ERROR: Final = 0.02  # of a log-probability, per token
_MEMORY: Final = "ctranslate2.json"
_WORTH_IT: Final = 0.9  # of float32's time; less gain is not worth any difference
_ROUNDS: Final = 3  # of which the fastest counts
_MAX_TOKENS: Final = 32  # per sentence
_SENTENCES: Final = 64  # per core
_BATCHES: Final = (64, 32)  # sentences: many share the work better, few stay in the caches
_MAX_SECONDS: Final = 1.0  # per setup
_ENVIRONMENT: Final = ("CT2_USE_MKL", "CT2_FORCE_CPU_ISA", "OMP_NUM_THREADS")  # what CTranslate2 also depends on

_Ids = Sequence[Sequence[int]]

_log = logging.getLogger(__name__)


class Measurement(NamedTuple):
    """The speed and accuracy of one setup."""

    setup: Setup
    seconds: float  # for all sentences
    error: float  # mean difference from torch in the log-probability of a token
    loss: float  # how much less likely its own translations are, per token

    @property
    def is_accurate(self) -> bool:
        """Whether it is accurate enough to translate with."""
        return self.error <= _MAX_ERROR and self.loss <= _MAX_ERROR


def load_engine(model_folder: str | Path, setup: Setup | None = None) -> CTranslate2Engine:
    """Load a model folder into CTranslate2, in the best setup for this machine; the first time takes some seconds."""
    setup = setup or choose_setup(model_folder)
    return CTranslate2Engine(load_cached_export(model_folder, setup.quantization), setup)


def load_cached_export(model_folder: str | Path, quantization: Quantization = "float32") -> Path:
    """Return the folder with the export of a model, which is written if it is missing or older than the model.

    It is in the model's folder, or in the user's cache if that cannot be written to.
    """
    suffix = "" if quantization == "float32" else f"-{quantization}"
    beside = Path(model_folder) / f"ctranslate2{suffix}"
    if is_exported(model_folder, beside, quantization):  # also in a read-only folder
        return beside
    folder = _home(Path(model_folder)) / f"ctranslate2{suffix}"
    run_in_thread(partial(export_folder, model_folder, folder, quantization))
    return folder


def choose_setup(model_folder: str | Path, compute: str = "auto") -> Setup:
    """Return the fastest accurate setup for a model on this machine, measured now or remembered.

    `compute` insists on one number format, accurate or not.
    """
    kind = None if compute == "auto" else as_quantization(compute)
    fingerprint = fingerprint_of(model_folder)
    machine = _machine() if kind is None else f"{_machine()}, {kind}"
    home = _home(Path(model_folder))
    known = _recall(home / _MEMORY, fingerprint)
    remembered = known | _recall(Path(model_folder) / _MEMORY, fingerprint)  # which may be read-only
    if machine in remembered:
        return remembered[machine]
    load_cached_export(model_folder)  # or an error: not every model can be exported
    _log.info("%s: first use on this machine; measuring how it runs fastest (some seconds)", Path(model_folder).name)
    tried = measure(model_folder, typical_sources(model_folder))
    of_kind = [each for each in tried if each.setup.quantization == kind]
    if kind is not None and not of_kind:
        kinds = ", ".join(dict.fromkeys(each.setup.quantization for each in tried))
        raise ConfigError(f"CTranslate2 does not support {kind} on this machine; it supports {kinds}")
    setup = _best(of_kind or tried).setup
    _remember(home / _MEMORY, fingerprint, known | {machine: setup})
    return setup


def _best(tried: Sequence[Measurement]) -> Measurement:
    by_speed = sorted(tried, key=lambda each: each.seconds)
    exact = next((each for each in by_speed if each.setup.quantization == "float32"), by_speed[0])
    fastest = next((each for each in by_speed if each.is_accurate), exact)
    return fastest if fastest.seconds < _WORTH_IT * exact.seconds else exact


def candidates() -> list[Setup]:
    """Return the setups that this machine supports; the first is float32, which the others are compared with."""
    cores = _cores()
    supported = ctranslate2.get_supported_compute_types("cpu")
    kinds: list[Quantization] = [kind for kind in ("float32", "int8", "bfloat16", "float16") if kind in supported]
    several = [Setup(kind, cores, 1) for kind in kinds]
    return [*several, Setup("float32", 1, cores)] if cores > 1 else several


def typical_sources(model_folder: str | Path) -> list[list[int]]:
    """Return sentences for the probe: the examples in the folder, repeated, or made-up ones.

    Accuracy is measured on what a model was trained to read; on nonsense it hesitates.
    """
    folder, count = find_model(model_folder), _SENTENCES * _cores()
    lines = (folder / EXAMPLES).read_text(encoding="utf-8").splitlines() if (folder / EXAMPLES).is_file() else []
    examples = list(filter(None, Tokenizers.load(folder).src.encode_batch(lines)))
    return list(islice(cycle(examples), count)) or made_up(read_config(folder).model.src_vocab, count)


def measure(model_folder: str | Path, sentences: _Ids) -> list[Measurement]:
    """Measure each setup on `sentences`, none of them empty."""
    longest = min(_MAX_TOKENS, read_config(model_folder).model.max_positions - 1)
    sources = [Source(sentence[:longest]) for sentence in sentences]
    request = Request(SearchConfig(max_length=longest))
    tried: list[Measurement] = []
    pairs: list[tuple[Sequence[int], Sequence[int]]] = []
    expected: list[float] = []
    yardstick: CTranslate2Engine | None = None
    for setup in candidates():
        folder = load_cached_export(model_folder, setup.quantization)
        engine = CTranslate2Engine(folder, setup)
        list(engine.translate(sources[: setup.workers], request))  # the first call allocates
        seconds, found, best = _timed(engine, sources, request)
        own: list[tuple[Sequence[int], Sequence[int]]] = [
            (source.tokens, found[number][0].tokens) for number, source in enumerate(sources)
        ]
        if yardstick is None:
            yardstick, pairs = engine, own
            expected = run_in_thread(partial(_torch_log_probs, model_folder, pairs))
        gaps = [abs(a - b) for a, b in zip(expected, _flat(engine.log_probs(pairs)), strict=True)]
        theirs = _flat(yardstick.log_probs(own))
        loss = sum(expected) / len(expected) - sum(theirs) / len(theirs)
        tried.append(Measurement(best, seconds, sum(gaps) / len(gaps), loss))
        if engine is not yardstick:
            engine.close()
    return tried


def _timed(
    engine: CTranslate2Engine, sources: Sequence[Source], request: Request
) -> tuple[float, dict[int, list[IdHypothesis]], Setup]:
    """Translate several times in batches of each size; return the shortest time, the translations and its setup."""
    times: dict[Setup, float] = {}
    start = time.perf_counter()
    for size in _BATCHES * _ROUNDS:
        if len(times) == len(_BATCHES) and time.perf_counter() - start > _MAX_SECONDS:
            break
        engine.setup = engine.setup._replace(batch=size)
        begin = time.perf_counter()
        found = dict(engine.translate(sources, request))
        times[engine.setup] = min(times.get(engine.setup, math.inf), time.perf_counter() - begin)
    best = min(times, key=lambda setup: times[setup])
    return times[best], found, best


def made_up(vocab: int, count: int) -> list[list[int]]:
    """Return made-up sentences, always the same."""
    draws = random.Random(0)  # noqa: S311 - no secret
    ids = range(len(SPECIAL), max(vocab, len(SPECIAL) + 1))
    return [draws.choices(ids, k=draws.randint((_MAX_TOKENS + 3) // 4, _MAX_TOKENS)) for _ in range(count)]


def _torch_log_probs(model_folder: str | Path, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
    """Return the log-probability of each token of the targets and their end marks by our own model, in a row."""
    sources, targets = zip(*pairs, strict=True)
    return _flat(log_probs_of(load_model(model_folder).float(), sources, targets))


def _flat(rows: list[list[float]]) -> list[float]:
    return [value for row in rows for value in row]


def _home(model_folder: Path) -> Path:
    is_shipped = model_folder.resolve().parent == SHIPPED.resolve()  # an installed package is not written to
    if not is_shipped and os.access(model_folder, os.W_OK):
        return model_folder
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "glassformer" / fingerprint_of(model_folder)[:16]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _machine() -> str:
    """Return a name for everything that the speed and accuracy of a model depend on."""
    settings = [f"{name}={os.environ[name]}" for name in _ENVIRONMENT if name in os.environ]
    return ", ".join([cpu_name(), f"{_cores()} cores", f"ctranslate2 {ctranslate2.__version__}", *settings])


def _recall(path: Path, fingerprint: str) -> dict[str, Setup]:
    """Read the setups chosen for this model, by machine."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["fingerprint"] != fingerprint:
            return {}
        return {machine: Setup(**setup) for machine, setup in content["setups"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}  # missing or damaged


def _remember(path: Path, fingerprint: str, setups: dict[str, Setup]) -> None:
    content = {"fingerprint": fingerprint, "setups": {machine: setup._asdict() for machine, setup in setups.items()}}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(content, indent=2) + "\n")
    except (OSError, DataError):  # nowhere to keep it: it is measured again next time
        return
