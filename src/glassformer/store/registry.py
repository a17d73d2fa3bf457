"""Models that ship with the package, found by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from glassformer.errors import ModelFileError, nearest

SHIPPED: Final = Path(__file__).parents[1] / "models"
DEFAULT_MODEL: Final = "fr-en"  # for commands that are given none


def shipped_models() -> dict[str, Path]:
    """Return the folder of each shipped model by its name."""
    return {config.parent.name: config.parent for config in sorted(SHIPPED.glob("*/config.json"))}


def find_model(model: str | Path) -> Path:
    """Return the folder of a model, given by its path or, if there is no such folder, by its name."""
    folder = Path(model)
    if os.path.exists(folder):  # False for a name that is too long for a file
        return folder
    shipped = shipped_models()
    if str(model) in shipped:
        return shipped[str(model)]
    neighbours = {str(folder.parent / config.parent.name) for config in folder.parent.glob("*/config.json")}
    known = {*shipped, *neighbours}
    hint = f"; {nearest(str(model), known)}" if known else ""
    raise ModelFileError(f"{model}: no such model folder, and no model of that name ships with glassformer{hint}")
