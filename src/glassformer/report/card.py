"""The model card of a run: a README.md that says what the model is, how to use it, and how to make it again."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from glassformer import __version__
from glassformer.config import CorpusConfig
from glassformer.errors import RunError
from glassformer.files import write_text
from glassformer.report.terminal import duration
from glassformer.store.checkpoint import whole_checkpoints
from glassformer.store.folder import CARD, WEIGHTS, is_signed, read_config, sign
from glassformer.text.tokenizer import Tokenizers
from glassformer.training.history import History, own_settings
from glassformer.training.observer import BaseObserver
from glassformer.training.recipe import Recipe, to_toml
from glassformer.training.run import CHECKPOINTS


def write_card(out: Path) -> None:
    """Write the README.md of a finished run, unless a person has changed the one that is there."""
    path = out / CARD
    try:
        if path.exists() and not is_signed(path.read_text(encoding="utf-8", errors="replace")):
            return
        text = "\n".join(_lines(out, History.read(out))) + "\n"
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    write_text(path, sign(text), error=RunError)


class ModelCard(BaseObserver):
    """Writes README.md into the run folder at the end, unless someone has edited it."""

    def finished(self, out: Path) -> None:
        """Write the card."""
        write_card(out)


def _lines(out: Path, history: History) -> Iterator[str]:
    recipe, name = history.recipe, out.absolute().name
    model, tokenizers = read_config(out).model, Tokenizers.load(out)
    pair = (
        f"{recipe.src_lang} to {recipe.tgt_lang}" if recipe.src_lang and recipe.tgt_lang else "one language to another"
    )
    sizes = (tokenizers.src.vocab_size, tokenizers.tgt.vocab_size)
    words = f"{sizes[0]:,} pieces for both sides" if tokenizers.joint else f"{sizes[0]:,} and {sizes[1]:,} pieces"
    given = recipe.init or recipe.vocabulary
    kind = f"{words}, taken from `{given.name}`" if given else f"{words} ({recipe.tokenizer.model})"
    yield f"# {name}"
    yield ""
    yield f"An encoder-decoder Transformer that translates {pair}, trained with glassformer {__version__}."
    yield ""
    yield "| | |\n|---|---|"
    yield f"| parameters | {_count_parameters(out / WEIGHTS):,} |"
    yield f"| layers | {model.n_encoder_layers} in the encoder, {model.n_decoder_layers} in the decoder |"
    yield f"| width | {model.d_model}, feed-forward {model.d_ff}, {model.n_heads} heads |"
    yield f"| vocabulary | {kind} |"
    yield from _use(name, history)
    yield from _data(out, recipe)
    yield from _training(out, history)
    yield from _scores(history)
    yield from _again(name, recipe)
    yield from _limits(recipe)


def _use(name: str, history: History) -> Iterator[str]:
    shown = [sample["src"] for end in history.ends for sample in end["samples"]]
    text = next((text for text in shown if text.isprintable() and len(text) <= 100), "Hello.")
    folder = shlex.quote(name)
    yield "\n## Use\n"
    yield f"```sh\nprintf '%s\\n' {shlex.quote(text)} | glassformer translate {folder}"
    yield f"glassformer info {folder}\n```\n"
    yield "```python\nfrom glassformer import Translator\n"
    yield f"translator = Translator.load({json.dumps(name, ensure_ascii=False)})"
    yield f"print(translator.translate({json.dumps(text, ensure_ascii=False)}))\n```"


def _data(out: Path, recipe: Recipe) -> Iterator[str]:
    yield "\n## Data\n"
    yield "| | file | weight | sha256 |\n|---|---|---|---|"
    for side, corpora in (("train", recipe.train), ("dev", recipe.dev)):
        for corpus in corpora:
            for path in filter(None, (corpus.path, corpus.target_path)):
                weight = f"{corpus.weight:g}" if side == "train" else ""
                yield f"| {side} | `{path.name}` | {weight} | {_sha256(path)} |"
    metas = sorted((out / "data").glob("*/meta.json"), key=os.path.getmtime)
    if metas:
        counts = dict(zip(("taken", "kept"), json.loads(metas[-1].read_bytes())["counts"], strict=False))
        yield f"\nAn epoch takes {counts['taken']:,} pairs and learns from {counts['kept']:,}."


def _training(out: Path, history: History) -> Iterator[str]:
    recipe = history.recipe
    yield "\n## Training\n"
    yield (
        f"{history.step:,} updates, {_tokens(out)}in {duration(history.seconds)} (looks at dev not counted) on "
        f"{_machine(recipe)}, torch {torch.__version__}."
    )
    own = {name: value for name, value in own_settings(recipe).items() if name != "out"}
    yield "\nSettings that differ from the defaults:\n\n| setting | value |\n|---|---|"
    for setting, value in own.items():
        yield f"| `{setting}` | {Path(value).name if setting in ('init', 'vocabulary') else value} |"


def _scores(history: History) -> Iterator[str]:
    yield "\n## Scores on dev\n"
    yield "| weights | BLEU | perplexity | |\n|---|---|---|---|"
    for end in history.ends:
        mark = "chosen" if end["chosen"] else ""
        yield f"| {end['weights']} | {end['bleu']:.2f} | {end['perplexity']:.3f} | {mark} |"
    yield (
        f"\nAt most {history.recipe.training.validate_on:,} sentences of dev were translated, with a beam of "
        f"{history.recipe.search.width}; perplexity is over all of dev. The weights were chosen by these very scores, "
        "so text that was never looked at will score lower."
    )
    if history.ends:
        yield f"\nsacreBLEU signature: `{history.ends[0]['signature']}`"


def _again(name: str, recipe: Recipe) -> Iterator[str]:
    values = recipe.model_dump(mode="json", exclude_defaults=True, exclude_none=True, exclude={"out"})
    values |= {side: [_beside(corpus) for corpus in getattr(recipe, side)] for side in ("train", "dev")}
    values |= {key: Path(values[key]).name for key in ("init", "vocabulary") if key in values}
    yield "\n## How to make it again\n"
    yield "Put this beside the data as `recipe.toml`:\n"
    yield f"```toml\n{to_toml(values)}```\n"
    yield f"```sh\nglassformer train recipe.toml --out {shlex.quote(name)}\n```\n"
    yield (
        f"With glassformer {__version__}, torch {torch.__version__}, the same kind of CPU and "
        f"{torch.get_num_threads()} threads the weights come out the same, bit for bit; elsewhere they differ a little."
    )


def _limits(recipe: Recipe) -> Iterator[str]:
    yield "\n## Limits\n"
    yield (
        "- It has seen only what the corpora above hold: other subjects, dialects and spellings are translated worse.\n"
        "- It translates sentence by sentence, and can be fluent and wrong. Names and numbers deserve a second look.\n"
        f"- Sentences of more than {recipe.reader.max_length:,} pieces were not in its training."
    )
    yield "\n## Licence\n"
    yield "To be filled in by the owner: of the weights, and of the corpora they were learned from."
    yield ""


def _beside(corpus: CorpusConfig) -> dict[str, Any]:
    """Write a corpus as a recipe that lies beside its files would."""
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
        return "no longer there"


def _tokens(out: Path) -> str:
    """Say how many tokens were read, as the last checkpoint has it."""
    found: Sequence[Path] = whole_checkpoints(out / CHECKPOINTS)
    if not found:
        return ""
    tokens = json.loads((found[-1] / "state.json").read_bytes())["tokens"]
    return f"{tokens:,} source and target tokens "


def _machine(recipe: Recipe) -> str:
    if torch.cuda.is_available() and recipe.training.device in ("auto", "cuda"):
        return torch.cuda.get_device_name()
    cpus = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.+)$", cpus.read_text(), re.MULTILINE) if cpus.exists() else None
    return f"{found[1] if found else platform.machine()}, {torch.get_num_threads()} threads"
