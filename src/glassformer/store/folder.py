"""A model is a folder: `config.json` says what it is, `model.safetensors` holds the weights.

Nothing in it is code, so a folder from a stranger can do no harm.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any, Final, Self

import torch
from pydantic import Field, model_validator
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from glassformer.config import ModelConfig, SearchConfig, Settings
from glassformer.errors import ModelFileError, nearest
from glassformer.model.fast.device import find_device
from glassformer.model.transformer import Transformer
from glassformer.store.registry import find_model
from glassformer.text.tokenizer import Tokenizers

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
CARD: Final = "README.md"
EXAMPLES: Final = "examples.txt"  # sentences that the model can read, a line each: what it is probed with

_SIGNATURE: Final = re.compile(r"<!-- written by glassformer, sha256 ([0-9a-f]{64}); .*-->\n\Z")


class AttentionHead(Settings):
    """A head of the decoder's attention to the source."""

    layer: int = Field(ge=0)
    head: int = Field(ge=0)


class About(Settings):
    """What a model folder says of its model besides its shape."""

    src_lang: str = Field("", description="the source's language: fr")
    tgt_lang: str = Field("", description="the target's language: en")
    tokenizer_sha256: tuple[str, ...] = Field(
        (), description="fingerprints of the source's and the target's vocabulary"
    )
    alignment: AttentionHead | None = Field(None, description="the head that says best which word became which")
    lower_capitals: bool = Field(False, description="a sentence ALL IN CAPITALS is read as if it were in lower case")
    search: SearchConfig | None = Field(None, description="how to translate with it when nothing else is said")
    training: dict[str, str | int | float] = Field(default_factory=dict, description="how it was trained, in figures")


class FolderConfig(Settings):
    """What `config.json` says."""

    format: str = Field("glassformer-model", pattern="^glassformer-model$")
    version: int = Field(1, ge=1, le=1)
    model: ModelConfig
    about: About = About()

    @model_validator(mode="after")
    def _has_head(self) -> Self:
        head = self.about.alignment
        if head is not None and (head.layer >= self.model.n_decoder_layers or head.head >= self.model.n_heads):
            raise ValueError(f"alignment: the model has no head {head.head} in a decoder layer {head.layer}")
        return self


def save_model(model: Transformer, folder: str | Path, about: About | None = None) -> None:
    """Write a model into `folder`, which is made if need be; shared weights are stored once."""
    folder = Path(folder)
    weights = {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}
    config = FolderConfig(model=model.config, about=about or About()).model_dump(mode="json")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        drafts = {name: folder / f".{name}" for name in (WEIGHTS, CONFIG)}  # a file that is there is whole
        save_file(weights, drafts[WEIGHTS], metadata={"format": "pt"})
        drafts[CONFIG].write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        drafts[WEIGHTS].chmod(drafts[CONFIG].stat().st_mode)  # safetensors lets nobody but the owner read
        for name, draft in drafts.items():
            draft.replace(folder / name)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{folder}: the model could not be written: {error}") from None


def load_model(folder: str | Path, device: str | torch.device = "cpu") -> Transformer:
    """Read a model by its folder or name, in the number format it was stored in, ready to translate.

    float16 is a format to store in: on a CPU, which is slow at computing in it, it becomes float32.
    """
    folder = find_model(folder)
    device = find_device(device) if isinstance(device, str) else device
    config = read_config(folder)
    weights = _read_weights(folder / WEIGHTS, device)
    with torch.device("meta"):
        shapes = {name: tuple(p.shape) for name, p in Transformer(config.model).named_parameters()}
    _check_shapes(folder / WEIGHTS, {name: tuple(t.shape) for name, t in weights.items()}, shapes)
    stored = next(iter(weights.values())).dtype
    computed = torch.float32 if stored == torch.float16 and device.type == "cpu" else stored
    with torch.random.fork_rng(devices=[]):  # reading a model draws nothing
        model = Transformer(config.model).to(device=device, dtype=computed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    return model.eval()


def refuse_to_overwrite(out: Path) -> None:
    """Say so if there is something where a model is to be written."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ModelFileError(f"{out} is already there; name a new folder")


def copy_model(source: str | Path, out: str | Path, number_format: str) -> None:
    """Copy a model folder with its weights in another number format: float16 is half of float32."""
    source, out = find_model(source), Path(out)
    refuse_to_overwrite(out)
    save_model(load_model(source).to(getattr(torch, number_format)), out, read_config(source).about)
    Tokenizers.load(source).save(out)
    for name in (CARD, EXAMPLES):
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)


def sign(text: str) -> str:
    """Append a signature to a model card, by which `is_signed` can tell that nobody has edited it."""
    promise = "a card that a person changed is not written again"
    return f"{text}<!-- written by glassformer, sha256 {_fingerprint(text)}; {promise} -->\n"


def is_signed(text: str) -> bool:
    """Return whether a model card is as it was generated."""
    found = _SIGNATURE.search(text)
    return found is not None and found[1] == _fingerprint(text[: found.start()])


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_config(folder: str | Path) -> FolderConfig:
    """Read and check the `config.json` of a model, by its folder or name."""
    path = find_model(folder) / CONFIG
    if not path.parent.is_dir():
        raise ModelFileError(f"{folder} is a file, and a model is a folder")
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (path.parent / "run.toml").is_file():
            raise ModelFileError(
                f"{folder} is a run that has not come to its end: give its command again, or take what it has so far, "
                f"glassformer average {folder} --out FOLDER"
            ) from None
        raise ModelFileError(f"{folder} is no model folder: it has no {CONFIG}") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not JSON, perhaps cut short: {error}") from None
    if not isinstance(content, dict) or content.get("format") != "glassformer-model":
        if (path.parent / "model.bin").is_file():
            raise ModelFileError(f"{folder} is an export for CTranslate2; name the model folder that it was made of")
        raise ModelFileError(f"{path} does not describe a glassformer model: 'format' is not 'glassformer-model'")
    return FolderConfig.parse(content, str(path))


def _read_weights(path: Path, device: str | torch.device) -> dict[str, Tensor]:
    if not path.is_file():
        raise ModelFileError(f"{path.parent}: the weights are missing: no {path.name}")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path} is not a whole safetensors file ({error}); copy or train it again") from None
    for name, tensor in weights.items():
        if not tensor.is_floating_point():
            raise ModelFileError(f"{path}: {name} holds {tensor.dtype} numbers, a weight is a fraction")
    return weights


def _check_shapes(path: Path, found: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]]) -> None:
    for name, shape in expected.items():
        if name not in found:
            raise ModelFileError(f"{path} lacks {name} of shape {shape}; {CONFIG} and weights do not belong together")
        if found[name] != shape:
            raise ModelFileError(f"{path}: {name} has shape {found[name]}, {CONFIG} asks for {shape}")
    for name in found.keys() - expected.keys():
        raise ModelFileError(f"{path} has {name}, for which this model has no place; {nearest(name, expected)}")
