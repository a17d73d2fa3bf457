"""How CTranslate2 runs best here: each way of computing is tried for speed and for accuracy, once for each machine.

int8 is not int8: on a CPU without VNNI the usual one is off by 0.08 to 0.13 in log-probability a token, ours (see
`convert.ctranslate2`) by 0.01. A way that is off by more than 0.02, or finds translations that are less likely by more
than that, is never chosen, however fast.
"""

from __future__ import annotations

import json
import math
import os
import platform
import random
import re
import time
from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Final, NamedTuple

import ctranslate2
import torch

from glassformer.config import SearchConfig
from glassformer.convert.ctranslate2 import Quantization, as_quantization, export_folder, fingerprint_of, is_exported
from glassformer.data.batches import collate
from glassformer.errors import ConfigError, DataError
from glassformer.files import write_text
from glassformer.store.folder import EXAMPLES, load_model, read_config
from glassformer.store.registry import SHIPPED, find_model
from glassformer.text.tokenizer import Tokenizers
from glassformer.text.vocab import PAD, SPECIAL
from glassformer.translate.engines.ctranslate2 import CTranslate2Engine, Setup
from glassformer.translate.engines.engine import Found, Request, Say, Source, aside

_MOST_ERROR: Final = 0.02  # of a log-probability, a token
_MEMORY: Final = "ctranslate2.json"
_WORTH_IT: Final = 0.9  # of float32's time; what gains less is not worth any difference
_ROUNDS: Final = 3  # of which the fastest counts
_LONGEST: Final = 32  # tokens
_SENTENCES: Final = 64  # for each core
_BATCHES: Final = (64, 32)  # sentences: many share the work better, few stay in the caches
_LONG: Final = 1.0  # seconds, after which a way is tried no more
_ENVIRONMENT: Final = ("CT2_USE_MKL", "CT2_FORCE_CPU_ISA", "OMP_NUM_THREADS")  # what else CTranslate2 goes by

_Ids = Sequence[Sequence[int]]


class Measured(NamedTuple):
    """What came out of trying one way of computing."""

    setup: Setup
    seconds: float  # for all sentences
    error: float  # mean difference from torch in the log-probability of a token
    loss: float  # how much less likely its own translations are, a token

    @property
    def is_accurate(self) -> bool:
        """Whether one may translate with it."""
        return self.error <= _MOST_ERROR and self.loss <= _MOST_ERROR


def load_engine(model_folder: str | Path, setup: Setup | None = None) -> CTranslate2Engine:
    """Load a model folder into CTranslate2, as is best on this machine; the first time takes some seconds."""
    setup = setup or choose_setup(model_folder)
    return CTranslate2Engine(load_cached_export(model_folder, setup.quantization), setup)


def load_cached_export(model_folder: str | Path, quantization: Quantization = "float32") -> Path:
    """Give the folder with the export of a model, which is made if it is missing or older than the model.

    It lies in the model's folder, or in the user's cache where that is not ours to write into.
    """
    suffix = "" if quantization == "float32" else f"-{quantization}"
    beside = Path(model_folder) / f"ctranslate2{suffix}"
    if is_exported(model_folder, beside, quantization):  # in a folder that can only be read, too
        return beside
    folder = _home(Path(model_folder)) / f"ctranslate2{suffix}"
    aside(partial(export_folder, model_folder, folder, quantization))
    return folder


def choose_setup(model_folder: str | Path, compute: str = "auto", say: Say | None = None) -> Setup:
    """Give the fastest of the accurate ways to run a model here, tried now or remembered; `say` hears of the trial.

    `compute` insists on one kind of numbers, accurate or not.
    """
    kind = None if compute == "auto" else as_quantization(compute)
    fingerprint = fingerprint_of(model_folder)
    machine = _machine() if kind is None else f"{_machine()}, {kind}"
    home = _home(Path(model_folder))
    known = _recall(home / _MEMORY, fingerprint)
    remembered = known | _recall(Path(model_folder) / _MEMORY, fingerprint)  # which may be one that can only be read
    if machine in remembered:
        return remembered[machine]
    load_cached_export(model_folder)  # or an error: not every model can be expressed
    if say is not None:
        say(f"{Path(model_folder).name}: first use on this machine: finding out how it runs best takes some seconds")
    tried = measure(model_folder, typical_sources(model_folder))
    of_kind = [each for each in tried if each.setup.quantization == kind]
    if kind is not None and not of_kind:
        raise ConfigError(f"this machine does not compute in {kind}; it knows {_listed(tried)}")
    setup = _best(of_kind or tried).setup
    _remember(home / _MEMORY, fingerprint, known | {machine: setup})
    return setup


def _best(tried: Sequence[Measured]) -> Measured:
    by_speed = sorted(tried, key=lambda each: each.seconds)
    exact = next((each for each in by_speed if each.setup.quantization == "float32"), by_speed[0])
    fastest = next((each for each in by_speed if each.is_accurate), exact)
    return fastest if fastest.seconds < _WORTH_IT * exact.seconds else exact


def _listed(tried: Sequence[Measured]) -> str:
    return ", ".join(dict.fromkeys(each.setup.quantization for each in tried))


def candidates() -> list[Setup]:
    """List the ways that this machine knows; the first is float32, the yardstick of the others."""
    cores = _cores()
    supported = ctranslate2.get_supported_compute_types("cpu")
    kinds: list[Quantization] = [kind for kind in ("float32", "int8", "bfloat16", "float16") if kind in supported]
    several = [Setup(kind, cores, 1) for kind in kinds]
    return [*several, Setup("float32", 1, cores)] if cores > 1 else several


def typical_sources(model_folder: str | Path) -> list[list[int]]:
    """Give sentences for the probe: the examples that the folder has, again and again, or some that are made up.

    What a model was trained to read is what its accuracy is to be measured on; on nonsense it hesitates.
    """
    folder, count = find_model(model_folder), _SENTENCES * _cores()
    lines = (folder / EXAMPLES).read_text(encoding="utf-8").splitlines() if (folder / EXAMPLES).is_file() else []
    examples = list(filter(None, Tokenizers.load(folder).src.encode_batch(lines)))
    return list(islice(cycle(examples), count)) or made_up(read_config(folder).model.src_vocab, count)


def measure(model_folder: str | Path, sentences: _Ids) -> list[Measured]:
    """Try each way on `sentences`, none of them empty."""
    longest = min(_LONGEST, read_config(model_folder).model.max_positions - 1)
    sources = [Source(sentence[:longest]) for sentence in sentences]
    request = Request(SearchConfig(max_length=longest))
    tried: list[Measured] = []
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
            expected = aside(partial(_torch_log_probs, model_folder, pairs))
        gaps = [abs(a - b) for a, b in zip(expected, _flat(engine.log_probs(pairs)), strict=True)]
        theirs = _flat(yardstick.log_probs(own))
        loss = sum(expected) / len(expected) - sum(theirs) / len(theirs)
        tried.append(Measured(best, seconds, sum(gaps) / len(gaps), loss))
        if engine is not yardstick:
            engine.close()
    return tried


def _timed(
    engine: CTranslate2Engine, sources: Sequence[Source], request: Request
) -> tuple[float, dict[int, list[Found]], Setup]:
    """Translate some times in batches of each size; give the shortest time, what was found, and the way it was."""
    times: dict[Setup, float] = {}
    start = time.perf_counter()
    for size in _BATCHES * _ROUNDS:
        if len(times) == len(_BATCHES) and time.perf_counter() - start > _LONG:
            break
        engine.setup = engine.setup._replace(batch=size)
        begin = time.perf_counter()
        found = dict(engine.translate(sources, request))
        times[engine.setup] = min(times.get(engine.setup, math.inf), time.perf_counter() - begin)
    best = min(times, key=lambda setup: times[setup])
    return times[best], found, best


def made_up(vocab: int, count: int, longest: int = _LONGEST) -> list[list[int]]:
    """Make sentences up, always the same."""
    draws = random.Random(0)  # noqa: S311 - no secret
    ids = range(len(SPECIAL), max(vocab, len(SPECIAL) + 1))
    return [draws.choices(ids, k=draws.randint((longest + 3) // 4, longest)) for _ in range(count)]


@torch.inference_mode()
def _torch_log_probs(model_folder: str | Path, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
    """Ask our model for each token of the targets and their end marks, all in a row."""
    model = load_model(model_folder).float()
    sources, targets = zip(*pairs, strict=True)
    batch = collate(sources, targets, model.start_id)
    log_probs = model.decode(batch.tgt_in, model.encode(batch.src, batch.src_mask)).log_softmax(dim=-1)  # (B, T, V)
    given: list[float] = log_probs.gather(2, batch.tgt_out.unsqueeze(2)).squeeze(2)[batch.tgt_out != PAD].tolist()
    return given


def _flat(rows: list[list[float]]) -> list[float]:
    return [value for row in rows for value in row]


def _home(model_folder: Path) -> Path:
    is_shipped = model_folder.resolve().parent == SHIPPED.resolve()  # a package stays as it was installed
    if not is_shipped and os.access(model_folder, os.W_OK):
        return model_folder
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "glassformer" / fingerprint_of(model_folder)[:16]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _machine() -> str:
    """Name what the speed and the accuracy of a model depend on."""
    try:
        cpu = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        cpu = None
    settings = [f"{name}={os.environ[name]}" for name in _ENVIRONMENT if name in os.environ]
    name = cpu[1] if cpu else platform.processor() or platform.machine()
    return ", ".join([name, f"{_cores()} cores", f"ctranslate2 {ctranslate2.__version__}", *settings])


def _recall(path: Path, fingerprint: str) -> dict[str, Setup]:
    """Read what was chosen for this model, on every machine that has used the folder."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["fingerprint"] != fingerprint:
            return {}
        return {machine: Setup(**setup) for machine, setup in content["setups"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}  # there is none, or somebody has written into it


def _remember(path: Path, fingerprint: str, setups: dict[str, Setup]) -> None:
    content = {"fingerprint": fingerprint, "setups": {machine: setup._asdict() for machine, setup in setups.items()}}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(content, indent=2) + "\n")
    except (OSError, DataError):  # nowhere to keep it: measured again the next time
        return
