"""From a recipe to a run that goes: the folder, the vocabulary, the data, the model, and the trainer that has them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import torch

from glassformer.config import CorpusConfig
from glassformer.data.batches import Batches
from glassformer.data.formats import Faults, OnFault, open_corpora, open_corpus
from glassformer.data.pair import Pair
from glassformer.data.prepared import Prepared
from glassformer.errors import ConfigError, DataError
from glassformer.evaluation.scores import check_tokenize
from glassformer.model.fast.allocator import keep_large_blocks
from glassformer.model.transformer import Transformer
from glassformer.store.folder import load_model, read_config
from glassformer.store.registry import find_model
from glassformer.text.tokenizer import JOINT_MODEL, SRC_MODEL, TGT_MODEL, Tokenizers, train_tokenizers
from glassformer.training.distributed import World, world
from glassformer.training.learner import Learner
from glassformer.training.lock import lock_run
from glassformer.training.progress import Reporter, reporter
from glassformer.training.recipe import Recipe
from glassformer.training.run import DATA, claim, has_begun
from glassformer.training.trainer import Trainer
from glassformer.training.validation import Judge

_SECONDS_BETWEEN_LINES: Final = 5.0


def train(recipe: Recipe, fresh: bool = False, accept_changes: bool = False, json_logs: bool = False) -> Path:
    """Train as the recipe says, or go on where the same recipe stopped; gives the folder of the run."""
    recipe = _inherited(recipe)
    if recipe.out is None:
        raise ConfigError("where should the run go? give --out FOLDER")
    config = recipe.training
    check_tokenize(recipe.bleu_tokenize)
    with (
        world(config.device) as here,
        lock_run(recipe.out) if here.is_first else nullcontext(),
        reporter(config.max_updates, json_logs, quiet=not here.is_first) as report,
    ):
        tune(here, config.threads)
        dev = list(_pairs(recipe.dev, recipe.reader.on_fault, report))
        if not dev:
            raise DataError(f"{recipe.dev[0].path}: no pair to look at")
        if here.is_first:
            fresh = fresh and not here.is_restarted  # processes that torchrun restarted must resume
            if fresh or not has_begun(recipe.out):  # a run that resumes needs nothing but its text
                _check(recipe)
            made = _make_tokenizers(recipe, report) if fresh else None  # nothing is deleted before all of it works
            for change in claim(recipe.out, recipe, fresh, accept_changes):
                report.say(f"changed: {change}")
            if made is None and not any((recipe.out / name).exists() for name in (JOINT_MODEL, SRC_MODEL, TGT_MODEL)):
                made = _make_tokenizers(recipe, report)
            if made is not None:
                made.save(recipe.out)
        here.wait()
        tokenizers = Tokenizers.load(recipe.out)
        with Prepared(
            recipe.train,
            recipe.reader,
            tokenizers,
            recipe.out / DATA,
            recipe.seed,
            n_processes=os.cpu_count() or 1,
            progress=_Preparing(report),
        ) as prepared:
            model = make_model(recipe, tokenizers.src.vocab_size, tokenizers.tgt.vocab_size)
            learner = Learner(model, config, here, recipe.seed)
            batches = Batches(prepared, recipe.batch, recipe.seed, model.start_id, here.rank, here.size)
            judge = Judge(
                model.config,
                dev,
                tokenizers,
                recipe.search,
                here.device,
                config.validate_on,
                recipe.bleu_tokenize,
            )
            if len(judge.dev) < len(dev):
                report.say(f"dev: {len(dev) - len(judge.dev)} pairs are longer than the model can read, and left out")
            Trainer(recipe, recipe.out, learner, batches, judge, here, report).run()
    return recipe.out


def _inherited(recipe: Recipe) -> Recipe:
    """Let a model that another one is trained on from read as that one does, unless the recipe says otherwise."""
    if recipe.init is None:
        return recipe
    about = read_config(recipe.init).about
    names = {"src_lang", "tgt_lang", "lower_capitals"} - recipe.model_fields_set
    return recipe.model_copy(update={name: getattr(about, name) for name in names})


def _check(recipe: Recipe) -> None:
    """Find what would keep a run from starting, before its folder is touched."""
    for corpus in recipe.train:
        if next(open_corpus(corpus, Faults(), "skip"), None) is None:
            raise DataError(f"{corpus.path}: no pair to learn from; `glassformer check` says why")
    given = _given(recipe)
    sizes = [recipe.tokenizer.vocab_size] * 2 if given is None else [side.vocab_size for side in Tokenizers.load(given)]
    recipe.model_settings(*sizes)


def _given(recipe: Recipe) -> Path | None:
    """Name what has the vocabulary, if it is not to be learned."""
    return find_model(recipe.init) if recipe.init else recipe.vocabulary


def tune(here: World, threads: int) -> None:
    """Set how this process computes, for as long as it lives."""
    if threads:
        torch.set_num_threads(threads)
    if here.device.type == "cpu":
        keep_large_blocks()


class _Preparing:
    """Says now and then how far the preparation of the corpus has come."""

    def __init__(self, report: Reporter) -> None:
        self.report, self.last = report, time.monotonic()

    def __call__(self, n_pairs: int, share: float) -> None:
        if time.monotonic() - self.last > _SECONDS_BETWEEN_LINES:
            self.report.say(f"preparing the corpus: {share:.0%}, {n_pairs:,} pairs")
            self.last = time.monotonic()


def _pairs(corpora: tuple[CorpusConfig, ...], on_fault: OnFault, report: Reporter) -> Iterator[Pair]:
    faults = Faults()
    yield from open_corpora(corpora, faults, on_fault)
    for line in faults.report():
        report.say(line)


def _make_tokenizers(recipe: Recipe, report: Reporter) -> Tokenizers:
    """Return the vocabulary that the recipe names, or train one on the corpora."""
    given = _given(recipe)
    if given is not None:
        return Tokenizers.load(given)
    report.say(f"learning a vocabulary of {recipe.tokenizer.vocab_size:,} pieces")
    pairs = _pairs(recipe.train, recipe.reader.on_fault, report)
    return train_tokenizers(((pair.src, pair.tgt) for pair in pairs), recipe.tokenizer)


def make_model(recipe: Recipe, src_vocab: int, tgt_vocab: int) -> Transformer:
    """Make the model that a run begins with: seeded weights, or those of another model."""
    torch.manual_seed(recipe.seed)
    model = Transformer(recipe.model_settings(src_vocab, tgt_vocab))
    if recipe.init is not None:
        model.load_state_dict(load_model(recipe.init).float().state_dict())
    return model
