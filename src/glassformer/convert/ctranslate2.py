"""Export a model to CTranslate2, atomically, as a folder that its Translator loads.

V vocabulary, D model width, H heads, K = D / H head width.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
import torch
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation, EmbeddingsSpec, LayerNormSpec, LinearSpec
from ctranslate2.specs.model_spec import visit_spec
from numpy.typing import NDArray
from torch import Tensor

from glassformer.errors import ConfigError, ModelFileError, nearest
from glassformer.files import atomic_folder
from glassformer.model.attention import MultiHeadAttention
from glassformer.model.decoder import DecoderLayer
from glassformer.model.encoder import EncoderLayer
from glassformer.model.layers import AddNorm, Embedding, FeedForward, LayerNorm
from glassformer.model.transformer import Transformer
from glassformer.store.folder import CONFIG, WEIGHTS, About, FolderConfig, load_model, read_config
from glassformer.text.tokenizer import JOINT_MODEL, SRC_MODEL, TGT_MODEL, Tokenizer, Tokenizers
from glassformer.text.vocab import BOS, EOS, PIECES, UNK

Quantization = Literal["float32", "int8", "float16", "bfloat16"]
QUANTIZATIONS: Final[tuple[Quantization, ...]] = get_args(Quantization)

_MARK: Final = "glassformer.json"  # records what an export was made from; CTranslate2 ignores it

_FORMAT: Final = b"1"  # increase when the same model is exported to other files

_ACTIVATIONS: Final = {"relu": Activation.RELU, "gelu": Activation.GELU, "silu": Activation.SWISH}

# A CPU without VNNI adds two products of 8 bits in 16, where 2 x 255 x 127 is cut off at 32767 but 2 x 255 x 64 is not:
# with 7 bits for weights of multiplications its int8 arithmetic is exact, at full speed. Tables are only looked up.
_LEVELS: Final = {LinearSpec: 64, EmbeddingsSpec: 127}


def as_quantization(word: str) -> Quantization:
    """Return a quantization by its name."""
    for known in QUANTIZATIONS:
        if word == known:
            return known
    raise ConfigError(f"unknown quantization {word}; {nearest(word, QUANTIZATIONS)}")


class Mark(NamedTuple):
    """What an export was made from."""

    quantization: str
    fingerprint: str  # of a model folder, or random
    max_positions: int  # the longest sequence it can read or write


def export_ctranslate2(
    model: Transformer,
    tokenizers: Tokenizers,
    folder: str | Path,
    about: About | None = None,
    quantization: Quantization = "float32",
    fingerprint: str = "",
) -> None:
    """Export `model` to `folder` for CTranslate2; an existing export is replaced, any other folder is an error.

    `fingerprint` identifies what the export is made from: an existing export with the same one is kept. The exported
    attention is that of the head `about.alignment`, or the mean over the last layer's heads.
    """
    folder = Path(folder)
    if folder.exists() and not (folder / _MARK).is_file() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ModelFileError(
            f"{folder} exists and is not a CTranslate2 export of glassformer; choose another folder or move it away"
        )
    spec = _spec(model, tokenizers, about or About())
    if quantization == "int8":
        visit_spec(spec, _quantise)
    spec.validate()
    spec.optimize(None if quantization == "int8" else quantization)
    mark = Mark(quantization, fingerprint or uuid.uuid4().hex, model.config.max_positions)
    with atomic_folder(folder, error=ModelFileError, is_same=lambda draft, there: read_mark(there) == mark) as draft:
        spec.save(str(draft))
        tokenizers.save(draft)
        (draft / _MARK).write_text(json.dumps(mark._asdict()) + "\n", encoding="utf-8")


def export_folder(model_folder: str | Path, folder: str | Path, quantization: Quantization = "float32") -> None:
    """Export a model folder to `folder` for CTranslate2, unless that is up to date."""
    if not is_exported(model_folder, folder, quantization):
        model, tokenizers = load_model(model_folder), Tokenizers.load(model_folder)
        about, fingerprint = read_config(model_folder).about, fingerprint_of(model_folder)
        export_ctranslate2(model, tokenizers, folder, about, quantization, fingerprint)


def is_exported(model_folder: str | Path, folder: str | Path, quantization: Quantization) -> bool:
    """Return whether `folder` is an up-to-date export of the model folder."""
    positions = read_config(model_folder).model.max_positions
    return read_mark(Path(folder)) == Mark(quantization, fingerprint_of(model_folder), positions)


def fingerprint_of(model_folder: str | Path) -> str:
    """Hash what an export of a model folder depends on: settings, weights and tokenizers."""
    digest = hashlib.sha256(_FORMAT)
    for name in (CONFIG, WEIGHTS, JOINT_MODEL, SRC_MODEL, TGT_MODEL):
        path = Path(model_folder) / name
        if path.is_file():
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        digest.update(name.encode())
    return digest.hexdigest()


def read_mark(folder: Path) -> Mark | None:
    """Return what an export was made from; None if the folder is not an export of glassformer."""
    try:
        return Mark(**json.loads((folder / _MARK).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def vocabulary(tokenizer: Tokenizer, size: int) -> list[str]:
    """Return a unique name for each id of one side."""
    known = tokenizer.vocab_size
    if known > size:
        raise ModelFileError(f"the tokenizer has {known} ids but the model {size}: they do not belong together")
    pieces = tokenizer.pieces(range(len(PIECES), known))
    names = [*PIECES.values(), *pieces, *(f"<unused{number}>" for number in range(known, size))]
    if len(set(names)) < size:
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"the tokenizer has the piece {twice} twice, but CTranslate2 needs unique pieces")
    return names


def _spec(model: Transformer, tokenizers: Tokenizers, about: About) -> TransformerSpec:
    config = model.config
    if config.norm == "none":
        raise ConfigError("norm='none': CTranslate2 does not support layers without norm; use the torch engine")
    if config.d_ff == 0 and config.norm == "post":
        raise ConfigError(
            "d_ff=0: CTranslate2 does not support post-norm layers without feed-forward; use the torch engine"
        )
    if config.positions == "rotary":
        raise ConfigError("positions='rotary': the CTranslate2 export has no rotary positions; use the torch engine")
    head = FolderConfig(model=config, about=about).about.alignment  # which the model has
    spec = TransformerSpec.from_config(
        (config.n_encoder_layers, config.n_decoder_layers),
        config.n_heads,
        pre_norm=config.norm == "pre",
        no_final_norm=True,
        activation=_ACTIVATIONS[config.activation],
        alignment_layer=-1 if head is None else head.layer,
        alignment_heads=0 if head is None else 1,  # 0: the mean of all
    )
    _set_embedding(spec.encoder, spec.encoder.embeddings[0], model.src_embedding, config.max_positions)
    _set_embedding(spec.decoder, spec.decoder.embeddings, model.tgt_embedding, config.max_positions)
    for theirs, ours in zip(spec.encoder.layer, model.encoder.layers, strict=True):
        assert isinstance(ours, EncoderLayer)
        _set_attention(theirs.self_attention, ours.self_attention, ours.around_self)
        _set_feed_forward(theirs.ffn, ours.feed_forward, ours.around_ff, config.d_model)
    for number, (theirs, ours) in enumerate(zip(spec.decoder.layer, model.decoder.layers, strict=True)):
        assert isinstance(ours, DecoderLayer)
        first = head.head if head is not None and head.layer == number else 0
        _set_attention(theirs.self_attention, ours.self_attention, ours.around_self)
        _set_attention(theirs.attention, ours.cross_attention, ours.around_cross, first)
        _set_feed_forward(theirs.ffn, ours.feed_forward, ours.around_ff, config.d_model)
    for side, norm in ((spec.encoder, model.encoder.norm), (spec.decoder, model.decoder.norm)):
        if norm is not None:
            vars(side)["layer_norm"] = LayerNormSpec()  # theirs only expect it in pre-norm, but take it in both
            _set_norm(side.layer_norm, norm)
    _set_linear(spec.decoder.projection, model.output.weight, model.output.bias)
    spec.register_source_vocabulary(vocabulary(tokenizers.src, config.src_vocab))
    spec.register_target_vocabulary(vocabulary(tokenizers.tgt, config.tgt_vocab))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = PIECES[UNK], PIECES[BOS], PIECES[EOS]
    spec.config.decoder_start_token = PIECES[model.start_id]
    spec.config.add_source_eos = True
    spec.config.add_attribute("layer_norm_epsilon", config.norm_eps)
    return spec


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().to("cpu", torch.float32).contiguous().numpy()


def _set_embedding(side: Any, theirs: EmbeddingsSpec, ours: Embedding, max_positions: int) -> None:
    theirs.weight = _array(ours.table)
    side.scale_embeddings = ours.factor != 1.0
    if ours.positions is None:  # without a table they would take sines
        side.position_encodings.encodings = np.zeros((max_positions, ours.table.size(1)), np.float32)
    else:
        side.position_encodings.encodings = _array(ours.positions.table)


def _set_linear(theirs: LinearSpec, weight: Tensor, bias: Tensor | None) -> None:
    theirs.weight = _array(weight)
    if bias is not None:
        theirs.bias = _array(bias)


def _set_norm(theirs: LayerNormSpec, ours: LayerNorm | None) -> None:
    assert ours is not None, "a model without norms was refused"
    theirs.gamma, theirs.beta = _array(ours.gamma), _array(ours.beta)


def _set_attention(theirs: Any, ours: MultiHeadAttention, around: AddNorm, first: int = 0) -> None:
    """Copy an attention with head `first` moved to the front: CTranslate2 returns the weights of that one only."""
    n_heads = ours.n_heads
    order = torch.arange(n_heads)
    order[[0, first]] = order[[first, 0]]
    weight: Tensor = ours.projection.weight
    bias: Tensor | None = ours.projection.bias
    d_model = ours.output.weight.size(0)
    weight = weight.view(3, n_heads, -1, d_model)[:, order].flatten(0, 2)  # (3 * H * K, D)
    bias = None if bias is None else bias.view(3, n_heads, -1)[:, order].flatten()
    output = ours.output.weight.view(d_model, n_heads, -1)[:, order].flatten(1)  # (D, H * K)
    if len(theirs.linear) == 2:  # self-attention projects once
        _set_linear(theirs.linear[0], weight, bias)
    else:
        _set_linear(theirs.linear[0], weight[:d_model], None if bias is None else bias[:d_model])
        _set_linear(theirs.linear[1], weight[d_model:], None if bias is None else bias[d_model:])
    _set_linear(theirs.linear[-1], output, ours.output.bias)
    if ours.factor == 1.0:
        theirs.queries_scale = 1.0
    _set_norm(theirs.layer_norm, around.norm)


def _set_feed_forward(theirs: Any, ours: FeedForward | None, around: AddNorm | None, d_model: int) -> None:
    if ours is None or around is None:  # theirs always has one: of zeros, which pre-norm adds to no effect
        _set_linear(theirs.linear_0, torch.zeros(1, d_model), None)
        _set_linear(theirs.linear_1, torch.zeros(d_model, 1), None)
        _set_norm(theirs.layer_norm, LayerNorm(d_model, eps=1.0))
        return
    _set_linear(theirs.linear_0, ours.hidden.weight, ours.hidden.bias)
    _set_linear(theirs.linear_1, ours.output.weight, ours.output.bias)
    _set_norm(theirs.layer_norm, around.norm)


def _quantise(owner: Any, name: str, value: Any) -> None:
    """Round a matrix to integers with one scale per row."""
    if type(owner) not in _LEVELS or not name.endswith("/weight"):
        return
    largest = np.abs(value).max(axis=1)
    scale = (_LEVELS[type(owner)] / np.where(largest == 0, 1, largest)).astype(np.float32)
    owner.weight, owner.weight_scale = np.rint(value * scale[:, None]).astype(np.int8), scale
