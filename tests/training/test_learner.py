"""One update: what is random in it comes from the seed, the update's number and the process, and from nothing else."""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.config import TrainingConfig
from glassformer.data.aligner import Aligner
from glassformer.data.batches import Batch, collate
from glassformer.model.transformer import Transformer
from glassformer.trace import look
from glassformer.training.distributed import World, world
from glassformer.training.learner import Learner, LossModule
from glassformer.training.loss import GUIDED_HEAD
from glassformer.translate.alignment import error_rates
from tests.models import build, same, settings
from tests.translate.test_alignment import WORDS, pairs


def loss_of(here: World, seed: int, step: int) -> float:
    """Give the loss of one update of a model with much dropout, always from the same weights."""
    torch.manual_seed(0)
    learner = Learner(build(dtype=torch.float32, dropout=0.5), TrainingConfig(), here, seed)
    batch = collate([[4, 5, 6], [7, 8]], [[5, 4], [6, 7, 8]])
    return learner.update(step, 0.0, [batch], 7).loss


def test_dropout_follows_seed_step_and_process() -> None:
    with world("cpu") as here:
        first = loss_of(here, seed=1, step=1)
        assert loss_of(here, seed=1, step=1) == first
        others = [loss_of(here, 1, 2), loss_of(here, 2, 1), loss_of(here._replace(rank=1), 1, 1)]
    assert len({first, *others}) == 4


def guided(model: Transformer, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the loss of a batch, without and with a guidance of 0.3."""
    loss, whole = LossModule(model, TrainingConfig(guided_alignment=0.3), torch.device("cpu"))(batch)
    return loss, whole


def test_guidance_is_the_cross_entropy_of_one_head() -> None:
    model = build(n_decoder_layers=2)
    batch = collate([[4, 5, 6], [7, 8]], [[5, 4], [6, 7, 8]])._replace(
        links=torch.tensor([[0, 1, 1], [1, 0, 2], [2, 0, 1]])
    )
    loss, whole = guided(model, batch)
    assert batch.links is not None
    assert batch.src_mask is not None
    expected = 0.0
    for row, target, source in batch.links.t().tolist():
        src = batch.src[row][batch.src_mask[row]].tolist()
        weights = look(model, src, batch.tgt_in[row].tolist())[f"dec.1.cross.h{GUIDED_HEAD}.weights"]
        assert isinstance(weights, Tensor)
        expected -= float(weights[target, source].log())
    same(whole, loss + 0.3 * expected, within=1e-6)
    plain = guided(model, batch._replace(links=None))
    assert plain[0] is plain[1]
    same(plain[0], loss)


def test_a_guided_head_learns_to_align() -> None:
    corpus = pairs(300)
    aligner = Aligner.learn(corpus)
    errors = []
    for weight in (0.0, 1.0):
        torch.manual_seed(0)
        model = Transformer(
            settings(src_vocab=WORDS + 10, tgt_vocab=WORDS + 10, n_decoder_layers=1, d_model=32, n_heads=4)
        )
        with world("cpu") as here:
            learner = Learner(model, TrainingConfig(guided_alignment=weight), here, 1)
            for step in range(1, 101):
                some = corpus[step % 10 :: 10]
                sources, targets = zip(*some, strict=True)
                batch = collate(sources, targets, model.start_id)
                links = [
                    (row, target, source) for row, found in enumerate(aligner.links(some)) for source, target in found
                ]
                batch = batch._replace(links=torch.tensor(links).t() if weight else None)
                learner.update(step, 0.01, [batch], batch.n_tokens)
        errors.append(error_rates(model.eval(), corpus)[0, GUIDED_HEAD])
    assert errors[1] < 0.1 < 0.4 < errors[0], errors
