"""A model is a folder: `config.json` describes it, `model.safetensors` holds the weights.

Nothing in it is code, so loading a folder from a stranger is safe.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import torch
from pydantic import Field, model_validator
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from glassformer.config import Calibration, ModelConfig, SearchConfig, Settings
from glassformer.errors import GlassformerError, ModelFileError, nearest
from glassformer.files import atomic_file, write_text
from glassformer.model.fast.device import find_device
from glassformer.model.transformer import Transformer
from glassformer.store.registry import find_model
from glassformer.text.tokenizer import Tokenizers

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
CARD: Final = "README.md"
EXAMPLES: Final = "examples.txt"  # one sentence per line, to measure engines with

_SIGNATURE: Final = re.compile(r"<!-- written by glassformer, sha256 ([0-9a-f]{64}); .*-->\n\Z")


class AttentionHead(Settings):
    """A head of the decoder's cross-attention."""

    layer: int = Field(ge=0)
    head: int = Field(ge=0)


class About(Settings):
    """What a model folder says about its model besides its shape."""

    src_lang: str = Field("", description="source language, such as fr")
    tgt_lang: str = Field("", description="target language, such as en")
    tokenizer_sha256: tuple[str, ...] = Field((), description="SHA-256 of the source and target vocabularies")
    alignment: AttentionHead | None = Field(None, description="the attention head that aligns words best")
    calibration: Calibration | None = Field(None, description="how confidence follows from probability")
    lower_capitals: bool = Field(False, description="read a sentence in ALL CAPITALS as lower case")
    search: SearchConfig | None = Field(None, description="default search settings")
    training: dict[str, str | int | float] = Field(default_factory=dict, description="figures of its training")


class FolderConfig(Settings):
    """The content of `config.json`."""

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
    """Write a model into `folder`, which is created if necessary; shared weights are stored once."""
    folder = Path(folder)
    config = FolderConfig(model=model.config, about=about or About()).model_dump(mode="json")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelFileError(f"{folder} cannot be created: {error.strerror}") from None
    write_weights(folder / WEIGHTS, dict(model.named_parameters()), error=ModelFileError)
    write_text(folder / CONFIG, json.dumps(config, indent=2) + "\n", error=ModelFileError)


def write_about(folder: Path, about: About) -> None:
    """Replace what `config.json` says about a model; its shape and weights stay."""
    config = read_config(folder).model_copy(update={"about": about})
    write_text(folder / CONFIG, json.dumps(config.model_dump(mode="json"), indent=2) + "\n", error=ModelFileError)


def write_weights(path: Path, weights: Mapping[str, Tensor], *, error: type[GlassformerError]) -> None:
    """Write a safetensors file atomically."""
    tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in weights.items()}
    with atomic_file(path, error=error) as file:
        file.write(save(tensors, metadata={"format": "pt"}))


def load_model(folder: str | Path, device: str | torch.device = "cpu") -> Transformer:
    """Load a model by its folder or name, in evaluation mode and in the number format it was stored in.

    On a CPU, which computes slowly in float16, that becomes float32.
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
    with torch.random.fork_rng(devices=[]):  # loading a model does not change the random state
        model = Transformer(config.model).to(device=device, dtype=computed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    return model.eval()


def refuse_to_overwrite(out: Path) -> None:
    """Raise if the output folder exists and is not empty."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ModelFileError(f"{out} already exists; name a new folder")


def copy_model(source: str | Path, out: str | Path, number_format: str) -> None:
    """Copy a model folder with its weights in another number format; float16 halves the size of float32."""
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
    """Read and validate the `config.json` of a model, by its folder or name."""
    path = find_model(folder) / CONFIG
    if not path.parent.is_dir():
        raise ModelFileError(f"{folder} is a file; a model is a folder")
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (path.parent / "run.toml").is_file():
            raise ModelFileError(
                f"{folder} is a training run that has not finished: resume it, or average its checkpoints into a model"
            ) from None
        raise ModelFileError(f"{folder} is not a model folder: it has no {CONFIG}") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not valid JSON, possibly truncated: {error}") from None
    if not isinstance(content, dict) or content.get("format") != "glassformer-model":
        if (path.parent / "model.bin").is_file():
            raise ModelFileError(f"{folder} is a CTranslate2 export; name the model folder that it was exported from")
        raise ModelFileError(f"{path} does not describe a glassformer model: 'format' is not 'glassformer-model'")
    return FolderConfig.parse(content, str(path))


def _read_weights(path: Path, device: str | torch.device) -> dict[str, Tensor]:
    if not path.is_file():
        raise ModelFileError(f"{path.parent} has no weights: {path.name} is missing")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path} is not a complete safetensors file ({error}); copy or train it again") from None
    for name, tensor in weights.items():
        if not tensor.is_floating_point():
            raise ModelFileError(f"{path}: {name} holds {tensor.dtype} numbers, expected floating point")
    return weights


def _check_shapes(path: Path, found: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]]) -> None:
    for name, shape in expected.items():
        if name not in found:
            raise ModelFileError(f"{path} lacks {name} of shape {shape}; {CONFIG} and weights do not match")
        if found[name] != shape:
            raise ModelFileError(f"{path}: {name} has shape {found[name]}, {CONFIG} requires {shape}")
    for name in found.keys() - expected.keys():
        raise ModelFileError(f"{path} has {name}, which this model does not; {nearest(name, expected)}")
