"""The model card of a run: a README.md that says what the model is, how to use it, and how to reproduce it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from glassformer import __version__
from glassformer.config import CorpusConfig
from glassformer.errors import RunError
from glassformer.files import write_text
from glassformer.model.fast.device import cpu_name
from glassformer.report.page import render
from glassformer.report.terminal import duration
from glassformer.store.checkpoint import whole_checkpoints
from glassformer.store.folder import CARD, WEIGHTS, is_signed, read_config, sign
from glassformer.text.tokenizer import Tokenizers
from glassformer.training.history import History, own_settings
from glassformer.training.observer import Observer
from glassformer.training.recipe import Recipe, to_toml
from glassformer.training.run import CHECKPOINTS


class ModelCard(Observer):
    """Writes README.md into the run folder at the end, unless someone has edited it."""

    def finished(self, out: Path) -> None:
        """Write the card."""
        write_card(out)


def write_card(out: Path) -> None:
    """Write the README.md of a finished run, unless someone has edited the one that exists."""
    path = out / CARD
    try:
        if path.exists() and not is_signed(path.read_text(encoding="utf-8", errors="replace")):
            return
        text = _card(out, History.read(out))
    except OSError as error:
        raise RunError(f"{error.filename or path} cannot be read: {error.strerror}") from None
    write_text(path, sign(text), durable=True, error=RunError)


def _card(out: Path, history: History) -> str:
    recipe, name = history.recipe, out.absolute().name
    samples = [sample["src"] for end in history.ends for sample in end["samples"]]
    sample = next((text for text in samples if text.isprintable() and len(text) <= 100), "Hello.")
    own = {setting: value for setting, value in own_settings(recipe).items() if setting != "out"}
    return render(
        "card.md.j2",
        name=name,
        quoted={text: (shlex.quote(text), json.dumps(text, ensure_ascii=False)) for text in (name, sample)},
        sample=sample,
        version=__version__,
        torch_version=torch.__version__,
        threads=torch.get_num_threads(),
        recipe=recipe,
        history=history,
        model=read_config(out).model,
        n_parameters=_count_parameters(out / WEIGHTS),
        vocabulary=_vocabulary(out, recipe),
        corpora=[
            (side, path.name, f"{corpus.weight:g}" if side == "train" else "", _sha256(path))
            for side, corpora in (("train", recipe.train), ("dev", recipe.dev))
            for corpus in corpora
            for path in corpus.paths
        ],
        counts=_counts(out),
        n_tokens=_count_tokens(out),
        trained_for=duration(history.seconds),
        machine=_machine(recipe),
        own={key: Path(value).name if key in ("init", "vocabulary") else value for key, value in own.items()},
        toml=_recipe(recipe),
    )


def _vocabulary(out: Path, recipe: Recipe) -> str:
    tokenizers = Tokenizers.load(out)
    sizes = [f"{tokenizer.vocab_size:,}" for tokenizer in tokenizers]
    pieces = f"{sizes[0]} pieces, shared by both sides" if tokenizers.joint else f"{' and '.join(sizes)} pieces"
    given = recipe.init or recipe.vocabulary
    return f"{pieces}, taken from `{given.name}`" if given else f"{pieces} ({recipe.tokenizer.model})"


def _counts(out: Path) -> tuple[int, int] | None:
    """Return how many pairs an epoch read and how many it kept, as the prepared corpus says."""
    metas = sorted((out / "data").glob("*/meta.json"), key=os.path.getmtime)
    if not metas:
        return None
    taken, kept, *_ = json.loads(metas[-1].read_bytes())["counts"]
    return taken, kept


def _recipe(recipe: Recipe) -> str:
    """Return a recipe for a folder that also holds the corpora."""
    values = recipe.model_dump(mode="json", exclude_defaults=True, exclude_none=True, exclude={"out"})
    values |= {side: [_beside(corpus) for corpus in getattr(recipe, side)] for side in ("train", "dev")}
    values |= {key: Path(values[key]).name for key in ("init", "vocabulary") if key in values}
    return to_toml(values)


def _beside(corpus: CorpusConfig) -> dict[str, Any]:
    values = corpus.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    return {key: Path(value).name if key in ("path", "target_path") else value for key, value in values.items()}


def _count_parameters(path: Path) -> int:
    with safe_open(path, framework="pt") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 - not a dict


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return f"`{hashlib.file_digest(file, 'sha256').hexdigest()}`"
    except OSError:
        return "file not found"


def _count_tokens(out: Path) -> int | None:
    """Return how many tokens were read, as the last checkpoint says."""
    found = whole_checkpoints(out / CHECKPOINTS)
    return int(json.loads((found[-1] / "state.json").read_bytes())["tokens"]) if found else None


def _machine(recipe: Recipe) -> str:
    if torch.cuda.is_available() and recipe.training.device in ("auto", "cuda"):
        return torch.cuda.get_device_name()
    return f"{cpu_name()}, {torch.get_num_threads()} threads"
