"""Settings: frozen, checked once, and wrong ones are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from glassformer.config import PRESETS, ModelConfig, SearchConfig, Settings, TranslateOptions, preset
from glassformer.errors import ConfigError


class Outer(Settings):
    """Settings that hold settings."""

    model: ModelConfig


def fault(values: dict[str, Any], kind: type[Settings] = ModelConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        kind.parse(values, "here")
    message = str(caught.value)
    assert message.startswith("here: ")
    assert "\n" not in message
    return message.removeprefix("here: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("src_vocab", 0),
        ("tgt_vocab", -5),
        ("d_model", 0),
        ("d_model", -512),
        ("d_model", 10**18),
        ("d_model", 1.5),
        ("d_model", "wide"),
        ("d_model", None),
        ("n_heads", 0),
        ("d_ff", -1),
        ("n_encoder_layers", 0),
        ("n_encoder_layers", 10**9),
        ("n_decoder_layers", 0),
        ("max_positions", 0),
        ("max_positions", 10**12),
        ("norm", "both"),
        ("norm_eps", 0.0),
        ("norm_eps", float("nan")),
        ("norm_eps", float("inf")),
        ("positions", "relative"),
        ("activation", "tanh"),
        ("tie", "some"),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("attention_dropout", 1.0),
        ("ff_dropout", 2),
        ("start_token", "sos"),
    ],
)
def test_a_value_past_its_limits_is_named_with_its_setting(name: str, value: object) -> None:
    assert fault({name: value}).startswith(f"{name}={value!r}: ")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"d_model": 10, "n_heads": 3}, "d_model=10 does not divide into n_heads=3"),
        ({"src_vocab": 5, "tgt_vocab": 6}, "src_vocab=5 and tgt_vocab=6 must be equal"),
        ({"src_vocab": 5, "tgt_vocab": 6, "tie": "embeddings"}, "tie='embeddings'"),
        ({"d_model": 9, "n_heads": 3}, "d_model=9 must be even"),
        ({"d_model": 9, "n_heads": 3, "positions": "halves"}, "d_model=9 must be even"),
        ({"d_model": 6, "n_heads": 2, "positions": "rotary"}, "d_k=3 is odd"),
        ({"norm": "none", "final_norm": True}, "final_norm=True"),
    ],
)
def test_settings_that_do_not_fit_together(values: dict[str, Any], said: str) -> None:
    assert said in fault(values)


@pytest.mark.parametrize(
    "values",
    [
        {"d_model": 9, "n_heads": 3, "positions": "none"},
        {"d_model": 9, "n_heads": 3, "positions": "learned"},
        {"src_vocab": 5, "tgt_vocab": 6, "tie": "target"},
        {"src_vocab": 5, "tgt_vocab": 6, "tie": "none"},
        {"d_ff": 0},
        {"norm": "pre", "final_norm": True},
    ],
)
def test_settings_that_fit(values: dict[str, Any]) -> None:
    assert ModelConfig.parse(values, "here").model_dump().items() >= values.items()


def test_an_unknown_setting_gets_the_nearest_name() -> None:
    assert fault({"d_modle": 4}) == "unknown setting d_modle; did you mean d_model?"


def test_faults_inside_nested_settings_name_the_inner_setting() -> None:
    assert fault({"model": {"n_head": 4}}, Outer) == "unknown setting model.n_head; did you mean n_heads?"
    assert fault({"model": {"d_ff": -1}}, Outer).startswith("model.d_ff=-1: ")
    assert fault({"model": {"n_heads": 3}}, Outer) == "model: d_model=512 does not divide into n_heads=3"
    assert fault({}, Outer) == "model: Field required"
    assert fault({"model": 3}, Outer).startswith("model=3: ")


@pytest.mark.parametrize("make", [SearchConfig, lambda **values: SearchConfig.model_validate(values)])
def test_wrong_settings_are_one_line_however_they_are_made(make: Callable[..., SearchConfig]) -> None:
    for values, said in [
        ({"width": 0}, "width=0: Input should be greater than or equal to 1"),
        ({"width": 3, "groups": 2}, "width=3 does not divide into groups=2"),
        ({"widht": 3}, "unknown setting widht; did you mean width?"),
    ]:
        with pytest.raises(ConfigError) as caught:
            make(**values)
        assert str(caught.value) == said
    with pytest.raises(ConfigError, match=r"^search\.width=0: "):
        TranslateOptions.model_validate({"search": {"width": 0}})


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        ModelConfig().d_model = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", PRESETS)
def test_settings_survive_a_dict(name: str) -> None:
    config = preset(name, 99)
    assert ModelConfig.parse(config.model_dump(mode="json"), "here") == config


def test_presets_are_those_of_the_papers_and_the_notes() -> None:
    def shape(name: str) -> tuple[int, ...]:
        c = preset(name)
        return c.n_encoder_layers, c.n_decoder_layers, c.d_model, c.d_ff, c.n_heads

    assert shape("pocket") == (1, 1, 16, 0, 1)
    assert shape("tiny") == (4, 4, 128, 256, 4)
    assert shape("small") == (3, 3, 256, 1024, 4)
    assert shape("base") == (6, 6, 512, 2048, 8)
    assert shape("big") == (6, 6, 1024, 4096, 16)
    assert preset("base") == ModelConfig()
    pocket = preset("pocket")
    assert (pocket.norm, pocket.start_token) == ("none", "eos")


def test_a_preset_can_be_changed() -> None:
    config = preset("tiny", vocab=50, norm="pre")
    assert (config.src_vocab, config.tgt_vocab, config.norm, config.d_model) == (50, 50, "pre", 128)
    assert preset("tiny", vocab=50, tgt_vocab=60, tie="none").tgt_vocab == 60


def test_wrong_presets() -> None:
    with pytest.raises(ConfigError, match=r"^unknown preset bse; did you mean base\?$"):
        preset("bse")
    with pytest.raises(ConfigError, match=r"^preset tiny: src_vocab=0: "):
        preset("tiny", vocab=0)
    with pytest.raises(ConfigError, match=r"^preset tiny: unknown setting d_modle; did you mean d_model\?$"):
        preset("tiny", d_modle=3)


@pytest.mark.parametrize(
    "values", [{"width": 0}, {"max_length": 0}, {"length_penalty": float("nan")}, {"length_penalty": float("inf")}]
)
def test_search_settings_have_limits(values: dict[str, Any]) -> None:
    (name,) = values
    assert fault(values, SearchConfig).startswith(f"{name}=")
