"""From a recipe to a running trainer: folder, vocabulary, data, model."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import numpy as np
import torch

from glassformer.config import CorpusConfig
from glassformer.data.aligner import Aligner
from glassformer.data.batches import Batches
from glassformer.data.formats import Faults, OnFault, open_corpora, open_corpus
from glassformer.data.pair import Pair
from glassformer.data.prepared import Prepared
from glassformer.data.shard import Shard
from glassformer.errors import ConfigError, DataError
from glassformer.evaluation.scores import check_tokenize
from glassformer.model.fast.device import keep_large_blocks
from glassformer.model.transformer import Transformer
from glassformer.store.folder import load_model, read_config
from glassformer.store.registry import find_model
from glassformer.text.tokenizer import Tokenizers, train_tokenizers
from glassformer.training.distributed import World, world
from glassformer.training.learner import Learner
from glassformer.training.observer import Observer
from glassformer.training.recipe import INHERITED, Recipe
from glassformer.training.run import ALIGNER, DATA, has_begun, lock_run, open_run_folder
from glassformer.training.trainer import Trainer
from glassformer.training.validation import Validator

_SECONDS_BETWEEN_LINES: Final = 5.0
_ALIGNED: Final = 30_000  # pairs that an aligner learns from, in about a gigabyte of memory

_log = logging.getLogger(__name__)


def train_run(
    recipe: Recipe, *, fresh: bool = False, accept_changes: bool = False, observers: Sequence[Observer] = ()
) -> Path:
    """Train as the recipe says, or resume the same recipe where it stopped, and return the run folder.

    `fresh` deletes what an earlier run made in the folder; `accept_changes` resumes with other settings.
    """
    try:
        return _train_run(_inherited(recipe), fresh, accept_changes, observers)
    finally:
        for observer in observers:
            observer.close()


def _train_run(recipe: Recipe, fresh: bool, accept_changes: bool, observers: Sequence[Observer]) -> Path:
    if recipe.out is None:
        raise ConfigError("out is not set: name the run folder")
    config, out = recipe.training, recipe.out
    check_tokenize(recipe.bleu_tokenize)
    with world(config.device) as here, lock_run(out) if here.is_first else nullcontext():
        configure_process(here, config.threads)
        dev = read_dev(recipe)
        if here.is_first:
            fresh = fresh and not here.is_restarted  # processes that torchrun restarted must resume
            _open(recipe, out, fresh, accept_changes)
            for observer in observers:
                observer.start(out, config.max_updates)
        here.wait()
        tokenizers = Tokenizers.load(out)
        n_processes, progress = os.cpu_count() or 1, _Preparing()
        with Prepared(
            recipe.train, recipe.reader, tokenizers, out / DATA, recipe.seed, n_processes, progress
        ) as prepared:
            model = make_model(recipe, tokenizers.src.vocab_size, tokenizers.tgt.vocab_size)
            learner = Learner(model, config, here, recipe.seed)
            batches = Batches(prepared, recipe.batch, recipe.seed, model.start_id, here.rank, here.size)
            if config.guided_alignment:
                batches.aligner = _find_aligner(out / ALIGNER, prepared, here)
            validator = Validator(recipe, model.config, dev, tokenizers, here.device)
            if len(validator.dev) < len(dev):
                left_out = len(dev) - len(validator.dev)
                _log.warning("left out %d validation pairs that are longer than the model's max_positions", left_out)
            Trainer(recipe, out, learner=learner, batches=batches, validator=validator, observers=observers).run()
    return out


def _find_aligner(path: Path, prepared: Prepared, here: World) -> Aligner:
    """Load the run's statistical aligner, or learn it from the first epoch; all processes must call it."""
    if here.is_first and not path.exists():
        _log.info("learning a word aligner for guided_alignment")
        learn_aligner(prepared.epoch(0)).save(path)
    here.wait()
    return Aligner.load(path)


def learn_aligner(shard: Shard) -> Aligner:
    """Learn a statistical aligner from pairs all over a shard."""
    numbers = np.arange(0, shard.n_pairs, -(-shard.n_pairs // _ALIGNED))
    sides = [
        np.split(ids, lengths.cumsum()[:-1]) for ids, lengths in (shard.src.gather(numbers), shard.tgt.gather(numbers))
    ]
    return Aligner.learn(list(zip(*sides, strict=True)))


def _inherited(recipe: Recipe) -> Recipe:
    """Take languages and lower_capitals from the model that the run starts from, unless the recipe sets them."""
    if recipe.init is None:
        return recipe
    about = read_config(recipe.init).about
    names = INHERITED - recipe.model_fields_set
    return recipe.model_copy(update={name: getattr(about, name) for name in names})


def read_dev(recipe: Recipe) -> list[Pair]:
    """Read the validation set."""
    dev = list(_pairs(recipe.dev, recipe.reader.on_fault))
    if not dev:
        raise DataError(f"{recipe.dev[0].path}: no sentence pair to validate on")
    return dev


def _open(recipe: Recipe, out: Path, fresh: bool, accept_changes: bool) -> None:
    """Open the run folder and put the vocabulary there, after checking whatever could keep the run from starting."""
    if fresh or not has_begun(out):  # a run that resumes needs nothing but its text
        check_recipe(recipe)
    made = _make_tokenizers(recipe) if fresh else None  # before anything is deleted
    for change in open_run_folder(out, recipe, fresh=fresh, accept_changes=accept_changes):
        _log.info("changed: %s", change)
    if made is None and not Tokenizers.found_in(out):
        made = _make_tokenizers(recipe)
    if made is not None:
        made.save(out)


def check_recipe(recipe: Recipe) -> None:
    """Raise if a corpus has no pair, the vocabulary cannot be read or the model cannot be made."""
    for corpus in recipe.train:
        if next(open_corpus(corpus, Faults(), "skip"), None) is None:
            raise DataError(f"{corpus.path}: no sentence pair to train on; check the corpus to see why")
    given = vocabulary_of(recipe)
    known = None if given is None else [tokenizer.vocab_size for tokenizer in Tokenizers.load(given)]
    recipe.model_settings(*known or [recipe.tokenizer.vocab_size] * 2)


def vocabulary_of(recipe: Recipe) -> Path | None:
    """Return where the recipe takes its vocabulary from, or None if it is to be trained."""
    return find_model(recipe.init) if recipe.init else recipe.vocabulary


def _make_tokenizers(recipe: Recipe) -> Tokenizers:
    given = vocabulary_of(recipe)
    if given is not None:
        return Tokenizers.load(given)
    _log.info("training a vocabulary of %s pieces", f"{recipe.tokenizer.vocab_size:,}")
    pairs = _pairs(recipe.train, recipe.reader.on_fault)
    return train_tokenizers(((pair.src, pair.tgt) for pair in pairs), recipe.tokenizer)


def _pairs(corpora: tuple[CorpusConfig, ...], on_fault: OnFault) -> Iterator[Pair]:
    faults = Faults()
    yield from open_corpora(corpora, faults, on_fault)
    for line in faults.report():
        _log.info("%s", line)


def configure_process(here: World, threads: int) -> None:
    """Set how this process computes, for as long as it lives; of several processes only the first logs."""
    if threads:
        torch.set_num_threads(threads)
    if here.device.type == "cpu":
        keep_large_blocks()
    if not here.is_first:
        logging.getLogger("glassformer").setLevel(logging.ERROR)


class _Preparing:
    """Logs from time to time how far the preparation of the corpus has come."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, n_pairs: int, share: float) -> None:
        if time.monotonic() - self.last > _SECONDS_BETWEEN_LINES:
            _log.info("preparing the corpus: %.0f%%, %s pairs", 100 * share, f"{n_pairs:,}")
            self.last = time.monotonic()


def make_model(recipe: Recipe, src_vocab: int, tgt_vocab: int) -> Transformer:
    """Create the model that a run starts with: seeded weights, or those of another model."""
    torch.manual_seed(recipe.seed)
    model = Transformer(recipe.model_settings(src_vocab, tgt_vocab))
    if recipe.init is not None:
        model.load_state_dict(load_model(recipe.init).float().state_dict())
    return model
