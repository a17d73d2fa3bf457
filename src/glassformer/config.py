"""Every setting, its default and its limits: frozen values that are checked once, where they are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from glassformer.errors import ConfigError, nearest

__all__ = ["PRESETS", "ModelConfig", "SearchConfig", "Settings", "preset"]


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
        return f"unknown setting {name}; {nearest(str(fault['loc'][-1]), cls.model_fields)}"
    message = str(fault["msg"]).removeprefix("Value error, ")
    return f"{name}={fault['input']!r}: {message}" if name else message


class ModelConfig(Settings):
    """The shape of one encoder-decoder Transformer; the defaults are the paper's base model."""

    src_vocab: int = Field(37_000, ge=1, description="rows of the source embedding")
    tgt_vocab: int = Field(37_000, ge=1, description="rows of the target embedding and of the output layer")
    d_model: int = Field(512, ge=1, description="width of a token's vector")
    n_heads: int = Field(8, ge=1, description="attention heads; d_model divides by it")
    d_ff: int = Field(2048, ge=0, description="hidden width of the feed-forward network; 0 leaves it out")
    n_encoder_layers: int = Field(6, ge=1)
    n_decoder_layers: int = Field(6, ge=1)
    norm: Literal["post", "pre", "none"] = Field("post", description="where layer norm stands")
    final_norm: bool = Field(False, description="one more norm after each stack; pre-norm needs it")
    norm_eps: float = Field(1e-5, gt=0)
    positions: Literal["interleaved", "halves", "learned", "none"] = Field(
        "interleaved",
        description="sin/cos in neighbouring channels (the notes), in two halves (Marian), learned, or none",
    )
    max_positions: int = Field(1024, ge=1, description="longest sequence; learned positions have that many rows")
    activation: Literal["relu", "gelu", "silu"] = "relu"
    scaled_attention: bool = Field(True, description="divide scores by sqrt(d_k); False is the plain dot product")
    attention_bias: bool = True
    output_bias: bool = False
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
        if self.norm == "none" and self.final_norm:
            raise ValueError("final_norm=True asks for a norm, norm='none' for none")
        return self


class SearchConfig(Settings):
    """How a translation is searched for; the defaults are greedy search."""

    width: int = Field(1, ge=1, description="hypotheses kept per sentence; 1 is greedy search")
    max_length: int = Field(256, ge=1, description="tokens, the end mark included")
    length_penalty: float = Field(1.0, description="the log-probability is divided by length to this power")


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
