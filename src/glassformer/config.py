"""Every setting with its default and limits: frozen values, validated once, when they are created."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from glassformer.errors import ConfigError, nearest

# Far above any real model, far below what would let a damaged config.json ask for all memory.
_MOST_WORDS: Final = 2**24
_WIDEST: Final = 2**17
_DEEPEST: Final = 2**10
_LONGEST: Final = 2**16


class Settings(BaseModel):
    """Base class of all settings: frozen, no unknown names; an invalid value is a one-line ConfigError."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, /, **values: Any) -> None:
        with _one_line_errors(type(self)):
            super().__init__(**values)

    # Without this mark pydantic would call `__init__` for nested settings, whose errors would not say where they are.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Validate a mapping, as pydantic does."""
        with _one_line_errors(cls):
            return super().model_validate(obj, **options)

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str) -> Self:
        """Validate `values`; the error names the first invalid one and `where` it came from."""
        try:
            return cls(**values)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None


@contextmanager
def _one_line_errors(cls: type[BaseModel]) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        raise ConfigError(_first_fault(cls, error)) from None


def _first_fault(cls: type[BaseModel], error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        for part in fault["loc"][:-1]:  # settings can be nested: find the class that lacks the name
            inner = cls.model_fields[str(part)].annotation if str(part) in cls.model_fields else None
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                cls = inner
        return f"unknown setting {name}; {nearest(str(fault['loc'][-1]), cls.model_fields)}"
    message = str(fault["msg"]).removeprefix("Value error, ")
    if isinstance(fault["input"], dict):  # several settings do not fit together: the message names them
        return f"{name}: {message}" if name else message
    return f"{name}={fault['input']!r}: {message}" if name else message


class ModelConfig(Settings):
    """The shape of one encoder-decoder Transformer; the defaults are the paper's base model."""

    src_vocab: int = Field(37_000, ge=1, le=_MOST_WORDS, description="source vocabulary size")
    tgt_vocab: int = Field(37_000, ge=1, le=_MOST_WORDS, description="target vocabulary size")
    d_model: int = Field(512, ge=1, le=_WIDEST, description="model width: length of a token's vector")
    n_heads: int = Field(8, ge=1, description="number of attention heads; must divide d_model")
    d_ff: int = Field(2048, ge=0, le=_WIDEST, description="hidden width of the feed-forward network; 0 omits it")
    n_encoder_layers: int = Field(6, ge=1, le=_DEEPEST, description="number of encoder layers")
    n_decoder_layers: int = Field(6, ge=1, le=_DEEPEST, description="number of decoder layers")
    norm: Literal["post", "pre", "none"] = Field(
        "post", description="position of layer norm: after or before each sublayer, or none"
    )
    final_norm: bool = Field(False, description="add a layer norm after each stack; recommended with pre-norm")
    norm_eps: float = Field(1e-5, gt=0, description="epsilon added to the variance in layer norm")
    positions: Literal["interleaved", "halves", "learned", "rotary", "none"] = Field(
        "interleaved",
        description="sines and cosines in alternate channels (the paper) or in two halves (Marian), learned vectors,"
        " rotated queries and keys (RoFormer), or none",
    )
    max_positions: int = Field(1024, ge=1, le=_LONGEST, description="maximum sequence length")
    activation: Literal["relu", "gelu", "silu"] = Field(
        "relu", description="activation function of the feed-forward network"
    )
    scaled_attention: bool = Field(True, description="divide attention scores by sqrt(d_k)")
    attention_bias: bool = Field(True, description="use biases in the attention projections")
    output_bias: bool = Field(False, description="use a bias in the output layer")
    tie: Literal["all", "target", "embeddings", "none"] = Field(
        "all",
        description="weight tying: all = source, target and output share one table; target = target and output; "
        "embeddings = source and target; none",
    )
    scale_embeddings: bool = Field(True, description="multiply embeddings by sqrt(d_model)")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout on sublayer outputs and embeddings, as in the paper")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="dropout on attention weights")
    ff_dropout: float = Field(0.0, ge=0, lt=1, description="dropout on the hidden layer of the feed-forward network")
    start_token: Literal["bos", "eos", "pad"] = Field("bos", description="first token the decoder reads")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model={self.d_model} does not divide into n_heads={self.n_heads}")
        if self.tie in ("all", "embeddings") and self.src_vocab != self.tgt_vocab:
            raise ValueError(
                f"tie={self.tie!r} shares one table, so src_vocab={self.src_vocab} and "
                f"tgt_vocab={self.tgt_vocab} must be equal"
            )
        if self.positions in ("interleaved", "halves") and self.d_model % 2:
            raise ValueError(f"d_model={self.d_model} must be even: sinusoidal positions come in pairs")
        if self.positions == "rotary" and self.d_model // self.n_heads % 2:
            raise ValueError(f"d_k={self.d_model // self.n_heads} is odd: positions='rotary' rotates pairs of channels")
        if self.norm == "none" and self.final_norm:
            raise ValueError("final_norm=True contradicts norm='none'")
        return self


class SearchConfig(Settings):
    """How to search for a translation; the defaults give greedy search."""

    method: Literal["beam", "sample", "mbr"] = Field(
        "beam", description="beam search, random sampling, or minimum Bayes risk over samples (by chrF)"
    )
    width: int = Field(
        1, ge=1, le=_WIDEST, description="beam size, or number of samples; a beam size of 1 is greedy search"
    )
    max_length: int = Field(
        256, ge=1, le=_LONGEST, description="maximum length of a translation in tokens, including the end token"
    )
    min_length: int = Field(
        0, ge=0, le=_LONGEST, description="minimum length of a translation in tokens, excluding the end token"
    )
    length_penalty: float = Field(1.0, description="length penalty alpha; values above 0 favour longer translations")
    penalty_form: Literal["power", "gnmt"] = Field(
        "power", description="divide by length^alpha, or by ((5 + length) / 6)^alpha (GNMT, Wu et al. 2016)"
    )
    coverage_penalty: float = Field(
        0.0, ge=0, description="coverage penalty beta (Wu et al. 2016): cost of source tokens that receive no attention"
    )
    stop: Literal["first", "exact"] = Field(
        "first",
        description="stop at `width` finished hypotheses, as CTranslate2 does, or when no open one can still win",
    )
    groups: int = Field(1, ge=1, description="number of groups in diverse beam search (Vijayakumar et al. 2016)")
    diversity: float = Field(0.5, ge=0, description="penalty on a token for each earlier group that chose it")
    temperature: float = Field(1.0, gt=0, description="sampling temperature")
    top_k: int = Field(0, ge=0, description="sample from the K most likely tokens; 0 means all")
    top_p: float = Field(1.0, gt=0, le=1, description="sample from the most likely tokens whose probabilities sum to P")
    seed: int = Field(0, ge=0, description="random seed for sampling")
    no_repeat_ngram: int = Field(0, ge=0, description="do not repeat n-grams of this size; 0 disables the rule")

    @model_validator(mode="after")
    def _searchable(self) -> Self:
        if self.width % self.groups:
            raise ValueError(f"width={self.width} does not divide into groups={self.groups}")
        if self.min_length >= self.max_length:
            raise ValueError(f"min_length={self.min_length} must be below max_length={self.max_length}")
        return self


class Calibration(Settings):
    """How the confidence of a translation follows from its probability: linear in log-odds (Platt 1999)."""

    offset: float = Field(0.0, description="log-odds of the confidence where the probability is 0.5")
    slope: float = Field(1.0, ge=0, description="factor on the log-odds of the probability")

    @staticmethod
    def logit(probability: float) -> float:
        """Return the log-odds of a probability, which stays finite at 0 and 1."""
        p = min(max(probability, 1e-6), 1 - 1e-6)
        return math.log(p / (1 - p))

    def confidence(self, probability: float) -> float:
        """Return the share of words that a reference is expected to confirm."""
        return 1 / (1 + math.exp(-self.offset - self.slope * self.logit(probability)))


class TranslateOptions(Settings):
    """One translation request: how to search, what must and must not appear, and what to report."""

    search: SearchConfig | None = Field(None, description="search settings; the model's own if not given")
    prefix: str = Field("", description="text that every translation starts with")
    suppress: tuple[str, ...] = Field((), description="words that must not appear, as written or capitalized")
    require: tuple[str, ...] = Field((), description="words that must appear as written; the text is not split then")
    n_best: int = Field(1, ge=1, description="number of translations to return; widens the beam if necessary")
    token_probabilities: bool = Field(False, description="report the probability of each token")
    alignment: bool = Field(False, description="report which source word each target word was translated from")
    attention: bool = Field(False, description="report the cross-attention weights of the alignment head")

    @field_validator("suppress", "require")
    @classmethod
    def _words(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            if not word.strip():
                raise ValueError(f"expected non-empty words, got {word!r}")
        return tuple(word.strip() for word in words)


class TrainingConfig(Settings):
    """How to train a model; learning rate and smoothing default to the paper's."""

    max_updates: int = Field(10_000, ge=1, description="total number of updates")
    accumulate: int = Field(1, ge=1, description="gradient accumulation: batches per update")
    optimizer: Literal["adam", "adamw"] = Field("adam", description="optimizer; adamw applies weight_decay to matrices")
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's decay rate for the mean of the gradients")
    beta2: float = Field(0.98, ge=0, lt=1, description="Adam's decay rate for the mean of the squared gradients")
    adam_eps: float = Field(1e-9, gt=0, description="Adam's epsilon")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of adamw")
    schedule: Literal["paper", "inverse-sqrt", "cosine", "linear", "constant"] = Field(
        "inverse-sqrt",
        description="learning rate schedule after warmup; cosine and linear reach 0 at the last update",
    )
    lr: float = Field(1e-3, gt=0, description="peak learning rate; with schedule=paper a factor, usually 1")
    warmup: int = Field(1000, ge=0, description="warmup updates until the peak learning rate")
    clip_norm: float = Field(1.0, ge=0, description="maximum gradient norm; 0 disables clipping")
    label_smoothing: float = Field(
        0.1, ge=0, lt=1, description="label smoothing: probability mass spread over the vocabulary"
    )
    guided_alignment: float = Field(
        0.0,
        ge=0,
        description="weight of a loss that teaches one cross-attention head to align words (Garg et al. 2019); 0 "
        "disables it",
    )
    ema: float = Field(
        0.0, ge=0, lt=1, description="decay of the exponential moving average of the weights; 0 disables it"
    )
    checkpoint_every: int = Field(1000, ge=1, description="updates between checkpoints")
    keep_checkpoints: int = Field(10, ge=2, description="number of checkpoints to keep; older ones are deleted")
    average_last: int = Field(
        5, ge=1, description="number of last checkpoints to average at the end; 1 disables averaging"
    )
    validate_every: int = Field(1000, ge=1, description="updates between validations")
    validate_on: int = Field(2000, ge=1, description="validation sentences to translate for BLEU and chrF")
    metric: Literal["bleu", "chrf", "loss"] = Field(
        "bleu", description="validation metric for the best checkpoint and for early stopping"
    )
    patience: int = Field(0, ge=0, description="early stopping: validations without improvement; 0 disables it")
    choose: Literal["auto", "average", "best", "ema", "last"] = Field(
        "auto", description="weights to keep at the end; auto takes the best of all on the validation set"
    )
    log_every: int = Field(50, ge=1, description="updates between lines in metrics.jsonl")
    precision: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="floating-point precision of the layers")
    device: str = Field("auto", description="cpu, cuda, mps, or auto for the best one available")
    threads: int = Field(0, ge=0, description="number of CPU threads; 0 uses all")
    sharding: Literal["ddp", "fsdp"] = Field(
        "ddp", description="with several processes: ddp keeps all weights in each, fsdp shards them (FSDP2)"
    )
    compile: bool = Field(False, description="use torch.compile; needs a C++ compiler")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.choose == "ema" and not self.ema:
            raise ValueError("choose='ema' needs a moving average: set ema above 0, such as 0.999")
        if self.weight_decay and self.optimizer == "adam":
            raise ValueError("weight_decay needs optimizer='adamw'")
        if self.guided_alignment and self.compile:
            raise ValueError("guided_alignment does not work with compile=true: set one of them")
        return self


class NoiseConfig(Settings):
    """How often source sentences get the noise of real typing: 0 never, 1 always."""

    no_stop: float = Field(0.0, ge=0, le=1, description="drop the final full stop")
    lower: float = Field(0.0, ge=0, le=1, description="convert to lower case")
    upper: float = Field(0.0, ge=0, le=1, description="convert to CAPITALS")
    apostrophes: float = Field(0.0, ge=0, le=1, description="exchange ' and \u2019")
    spaces: float = Field(
        0.0, ge=0, le=1, description="change the space before ? ! : ; to none, plain, no-break or narrow"
    )
    no_accents: float = Field(0.0, ge=0, le=1, description="drop accents from Latin letters")

    @property
    def is_on(self) -> bool:
        """Whether any noise is enabled."""
        return any(self.model_dump().values())

    @model_validator(mode="after")
    def _one_case(self) -> Self:
        if self.lower + self.upper > 1:
            raise ValueError(
                f"lower={self.lower} and upper={self.upper} exclude each other: their sum must be at most 1"
            )
        return self


class ReaderConfig(Settings):
    """How sentence pairs become token ids; everything random is off by default and drawn anew each epoch."""

    on_fault: Literal["skip", "fail"] = Field("skip", description="skip malformed lines, or fail at the first")
    max_length: int = Field(
        256,
        ge=2,
        le=_LONGEST,
        description="maximum tokens per side, including the end token; longer pairs are skipped and counted",
    )
    sample_alpha: float = Field(
        0.0,
        ge=0,
        le=1,
        description="subword regularization: with unigram, the exponent on a segmentation's probability (0.1 is "
        "strong, 0.5 mild); with BPE, the merge dropout rate; 0 disables it",
    )
    sample_sides: Literal["both", "source"] = Field("both", description="sides that subword regularization applies to")
    join: float = Field(0.0, ge=0, lt=1, description="probability of joining a pair to the previous one")
    rename: float = Field(
        0.0,
        ge=0,
        le=1,
        description="probability of replacing names and numbers shared by both sides with invented ones",
    )
    mask: float = Field(
        0.0,
        ge=0,
        le=1,
        description="probability of replacing names, numbers, URLs and tags shared by both sides with placeholders",
    )
    noise: NoiseConfig = NoiseConfig()

    @model_validator(mode="after")
    def _one_change(self) -> Self:
        if self.rename + self.mask > 1:
            raise ValueError(
                f"rename={self.rename} and mask={self.mask} exclude each other: their sum must be at most 1"
            )
        return self

    @property
    def is_random(self) -> bool:
        """Whether epochs differ from each other."""
        return bool(self.sample_alpha or self.join or self.rename or self.mask or self.noise.is_on)


class BatchConfig(Settings):
    """How pairs are grouped into batches of similar length."""

    max_tokens: int = Field(
        4096, ge=1, description="maximum batch size in tokens: sentences times the longer side, including padding"
    )
    window: int = Field(
        2**20, ge=1, description="number of pairs sorted by length at a time; bounds the memory for planning batches"
    )


class CorpusConfig(Settings):
    """A parallel corpus and how to read it."""

    path: Path = Field(description="file (plain, .gz or .zst); of two parallel files, the source side")
    target_path: Path | None = Field(None, description="of two parallel files, the target side")
    format: Literal["auto", "tsv", "moses", "jsonl", "tmx"] = Field(
        "auto", description="file format; auto goes by the file name"
    )
    src_field: str = Field("src", description="JSONL: name of the source field")
    tgt_field: str = Field("tgt", description="JSONL: name of the target field")
    src_lang: str | None = Field(None, min_length=1, description="TMX and JSONL: source language")
    tgt_lang: str | None = Field(None, min_length=1, description="TMX and JSONL: target language")
    swap: bool = Field(False, description="swap source and target")
    weight: float = Field(1.0, gt=0, description="passes over this corpus per epoch; 0.25 takes a quarter of its pairs")

    @classmethod
    def parse_word(cls, word: str, **shared: Any) -> Self:
        """Parse `FILE` or `SOURCE,TARGET`, optionally followed by `@WEIGHT`; `shared` are further settings."""
        paths, at, weight = word.rpartition("@")
        if not (at and paths and re.fullmatch(r"\d+(\.\d+)?|\.\d+", weight)):
            paths, weight = word, ""
        names = paths.split(",")
        if len(names) > 2 or not all(names):
            raise ConfigError(f"{word!r}: expected FILE or SOURCE,TARGET")
        values = dict(zip(("path", "target_path"), names, strict=False)) | ({"weight": weight} if weight else {})
        return cls.parse({**shared, **values}, word)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its file, or its two parallel files."""
        return (self.path,) if self.target_path is None else (self.path, self.target_path)

    @property
    def kind(self) -> Literal["tsv", "moses", "jsonl", "tmx"]:
        """The file format, taken from the file name unless it is set."""
        if self.format != "auto":
            return self.format
        if self.target_path is not None:
            return "moses"
        name = self.path.name.lower().removesuffix(".gz").removesuffix(".zst")
        for kind in ("tsv", "jsonl", "tmx"):
            if name.endswith(f".{kind}"):
                return kind
        raise ValueError(
            "unknown file extension (expected .tsv, .jsonl or .tmx, optionally with .gz or .zst): set the format, "
            "or give two parallel files as SOURCE,TARGET"
        )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.kind == "moses") != (self.target_path is not None):
            raise ValueError(f"format {self.kind} takes {'two files' if self.kind == 'moses' else 'one file'}")
        if (self.src_lang is None) != (self.tgt_lang is None):
            raise ValueError("set both src_lang and tgt_lang, or neither")
        if self.kind == "tmx" and self.src_lang is None:
            raise ValueError(
                "a TMX file holds several languages: set src_lang and tgt_lang, in a recipe as "
                '{ path = "memory.tmx", src_lang = "fr", tgt_lang = "en" }'
            )
        return self


class DoctorConfig(Settings):
    """Thresholds of the data doctor."""

    max_length: int = Field(2000, ge=1, description="maximum characters per side")
    max_ratio: float = Field(
        3.0, gt=1, description="maximum length ratio of the two sides, relative to the corpus median"
    )
    min_copy: int = Field(4, ge=1, description="minimum words for an identical source and target to count as a copy")


class TokenizerConfig(Settings):
    """How to learn a vocabulary; characters outside it are spelled in bytes, so nothing is unknown."""

    model: Literal["unigram", "bpe"] = Field("unigram", description="subword algorithm")
    vocab_size: int = Field(
        8000, ge=261, le=_MOST_WORDS, description="vocabulary size, including 4 special tokens and 256 bytes"
    )
    joint: bool = Field(True, description="share one vocabulary between source and target")
    normalise: Literal["none", "nfkc"] = Field(
        "none", description="Unicode normalization; with none, every text decodes to itself"
    )
    character_coverage: float = Field(
        0.9999,
        ge=0.9,
        le=1,
        description="share of the text covered by single-character pieces; ASCII is always included",
    )
    split_digits: bool = Field(True, description="split numbers into digits")
    max_sentences: int = Field(
        500_000,
        ge=1,
        description="maximum lines to learn from, sampled at random; needs about 40 bytes of memory per byte of text",
    )
    seed: int = Field(0, ge=0, description="random seed for that sample")


PRESETS: dict[str, dict[str, Any]] = {
    "pocket": {  # row 22 of the notes: one layer, one head, no norm, no feed-forward, EOS starts
        "d_model": 16, "n_heads": 1, "d_ff": 0, "n_encoder_layers": 1, "n_decoder_layers": 1,
        "norm": "none", "dropout": 0.0, "start_token": "eos",
    },
    "tiny": {"d_model": 128, "n_heads": 4, "d_ff": 256, "n_encoder_layers": 4, "n_decoder_layers": 4},
    "small": {"d_model": 256, "n_heads": 4, "d_ff": 1024, "n_encoder_layers": 3, "n_decoder_layers": 3},
    "base": {},
    "big": {"d_model": 1024, "n_heads": 16, "d_ff": 4096, "dropout": 0.3},
}  # fmt: skip


def preset(name: str, vocab: int | None = None, **changes: Any) -> ModelConfig:
    """Return the settings of a named size, with one vocabulary size for both sides and any `changes`."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name}; {nearest(name, PRESETS)}")
    sizes = {} if vocab is None else {"src_vocab": vocab, "tgt_vocab": vocab}
    return ModelConfig.parse({**sizes, **PRESETS[name], **changes}, f"preset {name}")
