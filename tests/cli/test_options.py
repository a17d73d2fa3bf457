"""Commands and options: none that version 0.1 had is lost, and the words behind them are read."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from glassformer.cli import app
from glassformer.cli.options import corpora, forced_words, model_and_text, search_names, search_settings
from glassformer.config import SearchConfig
from glassformer.errors import ConfigError, GlassformerError, UsageError

CORPUS = "--format --languages --fields --swap"
VERSION_0_1 = {
    "average": "--out --last",
    "check": f"--dev --test --write-clean --html --json --keep --remove {CORPUS} --max-length --max-ratio --strict",
    "demo": "--html",
    "evaluate": f"--test --compare --html --output --json --tokenize --comet --beam --search {CORPUS} "
    "--engine --threads",
    "explain": "--model --at --depth --html --json --with-weights --open --browser --no-browser --beam --search "
    "--force --reference --engine",
    "export": "--to --out --quantization",
    "info": "",
    "models": "",
    "notes": "--tour",
    "plan": "--json --seconds",
    "score": f"--json {CORPUS} --strict --device",
    "tokenizer": "--out --vocab-size --model --joint --separate --normalise --character-coverage --split-digits "
    f"--no-split-digits --max-sentences --seed {CORPUS} --strict",
    "train": "--fresh --accept-changes --json-logs --settings",
    "translate": "--input --output --json --nbest --alignment --attention --interactive --beam --length-penalty "
    "--search --prefix --suppress --require --engine --compute --threads --device",
}
ARGUMENTS_0_1 = {
    "average": ["run"],
    "check": ["files"],
    "evaluate": ["system"],
    "explain": ["words"],
    "export": ["model"],
    "info": ["model"],
    "notes": ["row"],
    "score": ["model", "file"],
    "tokenizer": ["files"],
    "train": ["recipe"],
    "plan": ["recipe"],
    "translate": ["model"],
}
SETTINGS_0_1 = """
    train dev out preset vocabulary init seed src_lang tgt_lang lower_capitals bleu_tokenize
    tokenizer.model tokenizer.vocab_size tokenizer.joint tokenizer.normalise tokenizer.character_coverage
    tokenizer.split_digits tokenizer.max_sentences tokenizer.seed
    reader.on_fault reader.max_length reader.sample_alpha reader.sample_sides reader.join reader.rename
    reader.noise.no_stop reader.noise.lower reader.noise.upper reader.noise.apostrophes reader.noise.spaces
    reader.noise.no_accents batch.max_tokens batch.window
    training.max_updates training.accumulate training.optimizer training.beta1 training.beta2 training.adam_eps
    training.weight_decay training.schedule training.lr training.warmup training.clip_norm training.label_smoothing
    training.ema training.checkpoint_every training.keep_checkpoints training.average_last training.validate_every
    training.validate_on training.metric training.patience training.choose training.log_every training.precision
    training.device training.threads training.sharding training.compile
    search.method search.width search.max_length search.min_length search.length_penalty search.penalty_form
    search.coverage_penalty search.stop search.groups search.diversity search.temperature search.top_k search.top_p
    search.seed search.no_repeat_ngram
    model.d_model model.n_heads model.d_ff model.n_encoder_layers model.n_decoder_layers model.norm model.final_norm
    model.norm_eps model.positions model.max_positions model.activation model.scaled_attention model.attention_bias
    model.output_bias model.tie model.scale_embeddings model.dropout model.attention_dropout model.ff_dropout
    model.start_token
"""


def parameters(name: str) -> tuple[set[str], list[str | None]]:
    """Return the options and the arguments of a command."""
    group = typer.main.get_command(app)
    context = typer.Context(group)
    command = group.get_command(context, name)  # type: ignore[attr-defined]
    found = command.get_params(typer.Context(command))
    options = [p for p in found if p.param_type_name == "option"]
    names = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    return names, [p.name for p in found if p.param_type_name == "argument"]


@pytest.mark.parametrize("name", VERSION_0_1)
def test_every_option_of_version_0_1_is_accepted(name: str) -> None:
    options, arguments = parameters(name)
    assert set(VERSION_0_1[name].split()) <= options
    assert arguments == ARGUMENTS_0_1.get(name, [])


@pytest.mark.parametrize("command", ["train", "plan"])
def test_every_setting_of_version_0_1_is_an_option(command: str) -> None:
    options, _ = parameters(command)
    names = SETTINGS_0_1.split()
    leaves = [name.rpartition(".")[2] for name in names]
    for name, leaf in zip(names, leaves, strict=True):
        assert f"--{name.replace('_', '-')}" in options
        if leaves.count(leaf) == 1:
            assert f"--{leaf.replace('_', '-')}" in options


@pytest.mark.parametrize("name", VERSION_0_1)
def test_every_option_says_what_it_is_for(name: str) -> None:
    group = typer.main.get_command(app)
    command = group.get_command(typer.Context(group), name)  # type: ignore[attr-defined]
    assert command.help
    assert all(param.help for param in command.get_params(typer.Context(command)))


def test_corpora_share_their_options() -> None:
    first, second = corpora(["a.tmx", "b.fr,b.en@2"], languages="fr,en", swap=True)
    assert (first.path, first.src_lang, first.tgt_lang, first.swap) == (Path("a.tmx"), "fr", "en", True)
    assert (second.target_path, second.weight, second.kind) == (Path("b.en"), 2.0, "moses")


def test_a_file_of_many_languages_needs_two_of_them() -> None:
    with pytest.raises(ConfigError, match="--languages SRC,TGT"):
        corpora(["a.tmx"])


@pytest.mark.parametrize("word", ["fr", "fr,", ",en", "fr,en,de"])
@pytest.mark.parametrize("option", ["fields", "languages"])
def test_two_names_are_two(option: str, word: str) -> None:
    with pytest.raises(UsageError, match=f"--{option} {word}: expected SRC,TGT"):
        corpora(["a.tsv"], **{option: word})  # type: ignore[arg-type]


def test_search_words_change_the_default() -> None:
    default = SearchConfig(width=5, max_length=9)
    assert search_settings(default, None) is default
    found = search_settings(default, ["temperature = 0.7", "no-repeat-ngram=3"], beam=2, length_penalty=0.5)
    assert found == default.model_copy(
        update={"temperature": 0.7, "no_repeat_ngram": 3, "width": 2, "length_penalty": 0.5}
    )
    found = search_settings(default, ["method=sample", "top-k=3"])
    assert (found.method, found.top_k, found.width) == ("sample", 3, 5)
    assert "temperature=" in search_names("temp")


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("widht=3", "unknown setting widht; did you mean width"),
        ("width", "expected width=VALUE"),
        ("width=", "width"),
        ("width=many", "width='many'"),
        ("groups=5", "groups=5"),
        ("temperature=-1", "temperature"),
        ("=1", "unknown setting"),
    ],
)
def test_wrong_search_words(word: str, complaint: str) -> None:
    with pytest.raises(GlassformerError, match=f"--search.*{complaint}"):
        search_settings(SearchConfig(), [word])


def test_words_are_forced_at_steps() -> None:
    assert forced_words(["2=chat", "5=a=b"]) == {2: "chat", 5: "a=b"}
    for word in ("house", "2=", "=house", "-1=house", "²=house"):
        with pytest.raises(UsageError, match="expected STEP=WORD"):
            forced_words([word])


def test_words_are_model_and_sentence(tmp_path: Path) -> None:
    assert model_and_text(["m", "text"], None, needs_text=True) == ("m", "text")
    assert model_and_text(["text"], "m", needs_text=True) == ("m", "text")
    assert model_and_text([str(tmp_path)], None, needs_text=False) == (str(tmp_path), "")
    assert model_and_text(["text"], None, needs_text=False) == ("fr-en", "text")
    assert model_and_text(["fr-en"], None, needs_text=False) == ("fr-en", "")
    long = "une phrase " * 500  # longer than any file name
    assert model_and_text([long], None, needs_text=True) == ("fr-en", long)
