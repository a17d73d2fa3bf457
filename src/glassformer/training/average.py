"""The mean of several checkpoints, which translates better than any of them (Vaswani et al. 2017, section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from glassformer.errors import RunError
from glassformer.model.transformer import Transformer
from glassformer.store.checkpoint import load_checkpoint, newest_checkpoints
from glassformer.store.folder import CONFIG, About, read_config, refuse_to_overwrite, save_model
from glassformer.text.tokenizer import Tokenizers
from glassformer.training.recipe import INHERITED
from glassformer.training.run import CHECKPOINTS, read_run


def average_run(run: Path, out: Path, last: int) -> list[str]:
    """Average the newest checkpoints of a run into a model folder, and return their names."""
    recipe = read_run(run)
    refuse_to_overwrite(out)
    checkpoints = newest_checkpoints(run / CHECKPOINTS, last)
    weights = average_checkpoints(checkpoints)
    tokenizers = Tokenizers.load(run)
    model = Transformer(recipe.model_settings(tokenizers.src.vocab_size, tokenizers.tgt.vocab_size))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    about = read_config(run).about if (run / CONFIG).is_file() else About(search=recipe.search)  # an unfinished run
    known = {
        **recipe.model_dump(include=INHERITED),
        "tokenizer_sha256": tuple(tokenizer.sha256 for tokenizer in tokenizers),
        "training": {"averaged": len(checkpoints)},  # these weights were not validated
    }
    save_model(model, out, about.model_copy(update=known))
    tokenizers.save(out)
    return [path.name for path in checkpoints]


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of checkpoints, loading one at a time."""
    if not paths:
        raise RunError("there is no checkpoint to average")
    total: dict[str, Tensor] = {}
    for path in paths:
        for name, tensor in load_checkpoint(path).tensors["model"].items():
            if name not in total:
                total[name] = torch.zeros_like(tensor, dtype=torch.float64)
            elif total[name].shape != tensor.shape:
                raise RunError(
                    f"{path}: {name} has shape {tuple(tensor.shape)}, in earlier checkpoints {tuple(total[name].shape)}"
                )
            total[name] += tensor
    return {name: (tensor / len(paths)).to(torch.float32) for name, tensor in total.items()}
