"""Every setting, its default and its limits: frozen values that are checked once, where they are made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from glassformer.errors import ConfigError, nearest

# Far above any model, far below what makes a damaged config.json ask for all the memory there is.
_MOST_WORDS: Final = 2**24
_WIDEST: Final = 2**17
_DEEPEST: Final = 2**10
_LONGEST: Final = 2**16


class Settings(BaseModel):
    """What all settings share: frozen, no unknown names, errors in one line."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str) -> Self:
        """Check `values`, naming `where` they came from in the error of the first that is wrong."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise ConfigError(f"{where}: {_first_fault(cls, error)}") from None


def _first_fault(cls: type[BaseModel], error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        for part in fault["loc"][:-1]:  # settings may hold settings: ask those that the name is missing from
            inner = cls.model_fields[str(part)].annotation if str(part) in cls.model_fields else None
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                cls = inner
        return f"unknown setting {name}; {nearest(str(fault['loc'][-1]), cls.model_fields)}"
    message = str(fault["msg"]).removeprefix("Value error, ")
    if isinstance(fault["input"], dict):  # a fault of several settings together: the message names them
        return f"{name}: {message}" if name else message
    return f"{name}={fault['input']!r}: {message}" if name else message


class ModelConfig(Settings):
    """The shape of one encoder-decoder Transformer; the defaults are the paper's base model."""

    src_vocab: int = Field(37_000, ge=1, le=_MOST_WORDS, description="rows of the source embedding")
    tgt_vocab: int = Field(
        37_000, ge=1, le=_MOST_WORDS, description="rows of the target embedding and of the output layer"
    )
    d_model: int = Field(512, ge=1, le=_WIDEST, description="width of a token's vector")
    n_heads: int = Field(8, ge=1, description="attention heads; d_model divides by it")
    d_ff: int = Field(2048, ge=0, le=_WIDEST, description="hidden width of the feed-forward network; 0 leaves it out")
    n_encoder_layers: int = Field(6, ge=1, le=_DEEPEST, description="layers that read")
    n_decoder_layers: int = Field(6, ge=1, le=_DEEPEST, description="layers that write")
    norm: Literal["post", "pre", "none"] = Field("post", description="where layer norm stands")
    final_norm: bool = Field(False, description="one more norm after each stack; pre-norm needs it")
    norm_eps: float = Field(1e-5, gt=0, description="what layer norm adds to the variance")
    positions: Literal["interleaved", "halves", "learned", "rotary", "none"] = Field(
        "interleaved",
        description="sines and cosines in alternate channels (the paper) or in two halves (Marian), learned vectors,"
        " rotated queries and keys (RoFormer), or none",
    )
    max_positions: int = Field(
        1024, ge=1, le=_LONGEST, description="longest sequence; learned positions have that many rows"
    )
    activation: Literal["relu", "gelu", "silu"] = Field("relu", description="between the two feed-forward layers")
    scaled_attention: bool = Field(True, description="divide scores by sqrt(d_k); False is the plain dot product")
    attention_bias: bool = Field(True, description="attention's projections have a bias")
    output_bias: bool = Field(False, description="the output layer has one")
    tie: Literal["all", "target", "embeddings", "none"] = Field(
        "all",
        description="one table for source, target and output; target and output; source and target; or three",
    )
    scale_embeddings: bool = Field(True, description="multiply embeddings by sqrt(d_model)")
    dropout: float = Field(0.1, ge=0, lt=1, description="on sublayer outputs and embedding sums, as in the paper")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="on attention weights")
    ff_dropout: float = Field(0.0, ge=0, lt=1, description="on the feed-forward network's hidden layer")
    start_token: Literal["bos", "eos", "pad"] = Field("bos", description="what the decoder reads first")

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
            raise ValueError(f"d_model={self.d_model} is odd: each sine needs a cosine beside it")
        if self.positions == "rotary" and self.d_model // self.n_heads % 2:
            raise ValueError(f"d_k={self.d_model // self.n_heads} is odd: positions='rotary' rotates pairs of channels")
        if self.norm == "none" and self.final_norm:
            raise ValueError("final_norm=True asks for a norm, norm='none' for none")
        return self


class SearchConfig(Settings):
    """How a translation is searched for; the defaults are greedy search."""

    method: Literal["beam", "sample", "mbr"] = Field(
        "beam", description="the likeliest, a draw, or of many draws the one that the others agree with most (chrF)"
    )
    width: int = Field(1, ge=1, le=_WIDEST, description="hypotheses, or draws, of a sentence; a beam of 1 is greedy")
    max_length: int = Field(256, ge=1, le=_LONGEST, description="tokens, the end mark included")
    min_length: int = Field(0, ge=0, le=_LONGEST, description="tokens before the end mark may come")
    length_penalty: float = Field(
        1.0, description="the exponent alpha of the length that log-probability is divided by"
    )
    penalty_form: Literal["power", "gnmt"] = Field(
        "power", description="length^alpha, the end mark not counted; or ((5 + length) / 6)^alpha, Wu et al. 2016"
    )
    coverage_penalty: float = Field(
        0.0, ge=0, description="beta of Wu et al. 2016: how much source words that nothing attended to count against it"
    )
    stop: Literal["first", "exact"] = Field(
        "first", description="at `width` finished hypotheses, as CTranslate2; or when none that goes on could still win"
    )
    groups: int = Field(
        1, ge=1, description="diverse beam search (Vijayakumar et al. 2016): groups that the beam is of"
    )
    diversity: float = Field(0.5, ge=0, description="what a token costs for each earlier group that chose it")
    temperature: float = Field(1.0, gt=0, description="of draws: what logits are divided by")
    top_k: int = Field(0, ge=0, description="draws are among so many of the likeliest tokens; 0: all")
    top_p: float = Field(
        1.0, gt=0, le=1, description="draws are among the likeliest tokens of this probability together"
    )
    seed: int = Field(0, ge=0, description="of draws")
    no_repeat_ngram: int = Field(0, ge=0, description="no sequence of so many tokens comes twice; 0: it may")

    @model_validator(mode="after")
    def _searchable(self) -> Self:
        if self.width % self.groups:
            raise ValueError(f"width={self.width} does not divide into groups={self.groups}")
        if self.min_length >= self.max_length:
            raise ValueError(f"min_length={self.min_length} leaves no room below max_length={self.max_length}")
        return self


class TranslateOptions(Settings):
    """One translation request: how to search, what the text must and must not contain, and what to report besides it."""

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
    """How a model is trained; rates and smoothing are the paper's unless a recipe says otherwise."""

    max_updates: int = Field(10_000, ge=1, description="updates of the weights, all in all")
    accumulate: int = Field(1, ge=1, description="batches whose gradients make one update")
    optimizer: Literal["adam", "adamw"] = Field("adam", description="adamw with weight_decay on matrices")
    beta1: float = Field(0.9, ge=0, lt=1, description="how slowly Adam forgets gradients")
    beta2: float = Field(0.98, ge=0, lt=1, description="how slowly it forgets their squares")
    adam_eps: float = Field(1e-9, gt=0, description="what it adds to their root")
    weight_decay: float = Field(0.0, ge=0, description="how much of each weight adamw takes away, times the rate")
    schedule: Literal["paper", "inverse-sqrt", "cosine", "linear", "constant"] = Field(
        "inverse-sqrt",
        description="how the rate falls after its warm-up; cosine and linear reach 0 with the last update",
    )
    lr: float = Field(1e-3, gt=0, description="the highest rate; a factor (usually 1) with schedule=paper")
    warmup: int = Field(1000, ge=0, description="updates until the highest rate")
    clip_norm: float = Field(1.0, ge=0, description="longest gradient; 0 clips nothing")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="what the other words get of each target's share")
    ema: float = Field(0.0, ge=0, lt=1, description="decay of the moving average of the weights; 0 keeps none")
    checkpoint_every: int = Field(1000, ge=1, description="updates between checkpoints")
    keep_checkpoints: int = Field(10, ge=2, description="the newest ones; older ones are deleted")
    average_last: int = Field(5, ge=1, description="checkpoints whose mean is tried at the end; 1 averages none")
    validate_every: int = Field(1000, ge=1, description="updates between looks at dev")
    validate_on: int = Field(2000, ge=1, description="sentences of dev that are translated for BLEU")
    metric: Literal["bleu", "chrf", "loss"] = Field("bleu", description="what best and patience go by")
    patience: int = Field(0, ge=0, description="looks at dev without a new best before it stops; 0 never does")
    choose: Literal["auto", "average", "best", "ema", "last"] = Field(
        "auto", description="which weights the run ends with; auto takes the best on dev of all there are"
    )
    log_every: int = Field(50, ge=1, description="updates between lines of metrics.jsonl")
    precision: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="numbers that the layers compute in")
    device: str = Field("auto", description="cpu, cuda, mps, or the best there is")
    threads: int = Field(0, ge=0, description="CPU threads; 0 takes all")
    sharding: Literal["ddp", "fsdp"] = Field(
        "ddp", description="of several processes, each holds all weights; or a share of them (FSDP2)"
    )
    compile: bool = Field(False, description="torch.compile; needs a C++ compiler")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.choose == "ema" and not self.ema:
            raise ValueError("choose='ema' needs a moving average: ema above 0, such as 0.999")
        if self.weight_decay and self.optimizer == "adam":
            raise ValueError("weight_decay needs optimizer='adamw': the paper's Adam has none")
        return self


class NoiseConfig(Settings):
    """How often a source sentence is typed as real users type; 0 never, 1 always."""

    no_stop: float = Field(0.0, ge=0, le=1, description="the full stop at the end left out")
    lower: float = Field(0.0, ge=0, le=1, description="all in lower case")
    upper: float = Field(0.0, ge=0, le=1, description="ALL IN CAPITALS")
    apostrophes: float = Field(0.0, ge=0, le=1, description="' written as \u2019 and \u2019 as '")
    spaces: float = Field(0.0, ge=0, le=1, description="none, a plain, a hard or a narrow space before ? ! : ;")
    no_accents: float = Field(0.0, ge=0, le=1, description="Latin letters without accents")

    @property
    def is_on(self) -> bool:
        """Whether any of it ever happens."""
        return any(self.model_dump().values())

    @model_validator(mode="after")
    def _one_case(self) -> Self:
        if self.lower + self.upper > 1:
            raise ValueError(f"lower={self.lower} and upper={self.upper} exclude each other, so their sum is at most 1")
        return self


class ReaderConfig(Settings):
    """How sentence pairs become token ids; what is random is off by default, and differs from epoch to epoch."""

    on_fault: Literal["skip", "fail"] = Field("skip", description="what a line with a fault does: see the data doctor")
    max_length: int = Field(
        256, ge=2, le=_LONGEST, description="tokens of a side with the end mark; longer pairs are counted and left out"
    )
    sample_alpha: float = Field(
        0.0,
        ge=0,
        le=1,
        description="how sentences are cut at random: with unigram the exponent on a cut's probability (0.1 is wild, "
        "0.5 tame), with BPE the share of merges left out; 0 cuts each the one best way",
    )
    sample_sides: Literal["both", "source"] = Field(
        "both", description="the sides that are cut at random; a target cut one way is learned sooner"
    )
    join: float = Field(0.0, ge=0, lt=1, description="how often a pair is put behind the one before it, as one pair")
    rename: float = Field(
        0.0, ge=0, le=1, description="how often names and numbers that both sides share become invented ones, to copy"
    )
    noise: NoiseConfig = NoiseConfig()

    @property
    def is_random(self) -> bool:
        """Whether anything is drawn anew each epoch."""
        return bool(self.sample_alpha or self.join or self.rename or self.noise.is_on)


class BatchConfig(Settings):
    """How pairs are put together into batches of similar length."""

    max_tokens: int = Field(
        4096, ge=1, description="sentences times positions of the longer side, padding and end marks included"
    )
    window: int = Field(
        2**20, ge=1, description="pairs that are sorted by length together; bounds the memory that planning takes"
    )


class CorpusConfig(Settings):
    """Where sentence pairs are read from, and how."""

    path: Path = Field(description="the file, plain, .gz or .zst; of two parallel files, the source's")
    target_path: Path | None = Field(None, description="of two parallel files, the target's")
    format: Literal["auto", "tsv", "moses", "jsonl", "tmx"] = Field("auto", description="auto goes by the ending")
    src_field: str = Field("src", description="JSONL: the name of the source's field")
    tgt_field: str = Field("tgt", description="JSONL: the name of the target's field")
    src_lang: str | None = Field(None, min_length=1, description="TMX, and JSONL's translation: the source's language")
    tgt_lang: str | None = Field(None, min_length=1, description="TMX, and JSONL's translation: the target's language")
    swap: bool = Field(False, description="read the target as the source, and the source as the target")
    weight: float = Field(1.0, gt=0, description="how often it is gone through for once through one of weight 1")

    @classmethod
    def parse_word(cls, word: str, **shared: Any) -> Self:
        """Read a word of the command line, `FILE` or `SOURCE,TARGET`, with `@WEIGHT` behind it or not.

        `shared` are settings that all words of a command have in common.
        """
        paths, at, weight = word.rpartition("@")
        if not (at and paths and re.fullmatch(r"\d+(\.\d+)?|\.\d+", weight)):
            paths, weight = word, ""
        names = paths.split(",")
        if len(names) > 2 or not all(names):
            raise ConfigError(f"{word!r} is neither FILE nor SOURCE,TARGET")
        values = dict(zip(("path", "target_path"), names, strict=False)) | ({"weight": weight} if weight else {})
        return cls.parse({**shared, **values}, word)

    @property
    def kind(self) -> Literal["tsv", "moses", "jsonl", "tmx"]:
        """The format, found by the ending where it is not set."""
        if self.format != "auto":
            return self.format
        if self.target_path is not None:
            return "moses"
        name = self.path.name.lower().removesuffix(".gz").removesuffix(".zst")
        for kind in ("tsv", "jsonl", "tmx"):
            if name.endswith(f".{kind}"):
                return kind
        raise ValueError(
            "the ending is none of .tsv, .jsonl, .tmx (and then .gz or .zst): name the format, "
            "or write two parallel files as SOURCE,TARGET"
        )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.kind == "moses") != (self.target_path is not None):
            raise ValueError(f"format {self.kind} takes {'two files' if self.kind == 'moses' else 'one file'}")
        if (self.src_lang is None) != (self.tgt_lang is None):
            raise ValueError("src_lang and tgt_lang are given together or not at all")
        if self.kind == "tmx" and self.src_lang is None:
            raise ValueError(
                "a TMX file holds several languages: name two of them, --languages fr,en, or for train in a recipe "
                '{ path = "memory.tmx", src_lang = "fr", tgt_lang = "en" }'
            )
        return self


class DoctorConfig(Settings):
    """What the data doctor calls too long, too uneven and a copy."""

    max_length: int = Field(2000, ge=1, description="characters of a side")
    max_ratio: float = Field(3.0, gt=1, description="how many times longer than usual one side may be beside the other")
    min_copy: int = Field(4, ge=1, description="words from which a source copied as its target is no mere name")


class TokenizerConfig(Settings):
    """How a vocabulary is learnt from text; whatever is not in it is spelt in bytes, so nothing is unknown."""

    model: Literal["unigram", "bpe"] = Field("unigram", description="pieces by their likelihood, or by merging pairs")
    vocab_size: int = Field(
        8000, ge=261, le=_MOST_WORDS, description="ids in all: 4 special ones, 256 bytes, the rest learnt"
    )
    joint: bool = Field(True, description="one vocabulary for both sides, or one for each")
    normalise: Literal["none", "nfkc"] = Field(
        "none", description="none gives every text back as it was; nfkc folds ligatures, widths and the like"
    )
    character_coverage: float = Field(
        0.9999, ge=0.9, le=1, description="share of the text whose characters get ids of their own; ASCII always does"
    )
    split_digits: bool = Field(True, description="write a number digit by digit")
    max_sentences: int = Field(
        500_000, ge=1, description="lines it learns from, drawn at random; each byte of them takes 40 bytes of memory"
    )
    seed: int = Field(0, ge=0, description="of the draw")


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
    """Make the settings of a named size, with one vocabulary for both sides and any `changes`."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name}; {nearest(name, PRESETS)}")
    sizes = {} if vocab is None else {"src_vocab": vocab, "tgt_vocab": vocab}
    return ModelConfig.parse({**sizes, **PRESETS[name], **changes}, f"preset {name}")
