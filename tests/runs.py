"""Run folders for the tests, written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from glassformer.training.recipe import Recipe, to_toml

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def report(step: int, **changes: Any) -> dict[str, Any]:
    """Return a line of metrics.jsonl about training."""
    figures = {"loss": 1 + 8 / step, "lr": 0.001, "tokens_per_s": 5000.0, "norm": 1.5, "seconds": 0.5 * step}
    return {"kind": "train", "step": step, "epoch": step // 100, **figures, **changes}


def validation(step: int, kind: str = "dev", texts: Iterable[str] = ("un", "deux"), **changes: Any) -> dict[str, Any]:
    """Return a line of metrics.jsonl about a validation."""
    samples = [{"src": text, "hypothesis": f"{text} {step}", "reference": f"{text}!"} for text in texts]
    figures = {"loss": 1 + 9 / step, "perplexity": 3 + 9 / step, "bleu": 40 - 90 / step, "chrf": 60 - 90 / step}
    return {"kind": kind, "step": step, **figures, "signature": SIGNATURE, "samples": samples, **changes}


look = validation


def write_run(out: Path, lines: Iterable[dict[str, Any]], **changes: Any) -> Recipe:
    """Write `run.toml` and `metrics.jsonl`; `changes` write a dot as two underscores."""
    out.mkdir(parents=True, exist_ok=True)
    named = {name.replace("__", "."): value for name, value in changes.items()}
    recipe = Recipe.read(None, {"train": ["a.tsv"], "dev": ["b.tsv"], "out": str(out), **named})
    (out / "run.toml").write_text(to_toml(recipe.model_dump(mode="json", exclude_none=True)), encoding="utf-8")
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (out / "metrics.jsonl").write_text(text, encoding="utf-8")
    return recipe
