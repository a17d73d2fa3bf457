"""Commands for model folders: models, info, export."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import options
from glassformer.errors import UsageError

app = typer.Typer()

_log = logging.getLogger(__name__)


@app.command()
def models() -> None:
    """List the models that ship with glassformer."""
    from rich.console import Console

    from glassformer.report.info import show_models

    show_models(Console())


@app.command()
def info(
    model: options.Model,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the model card as a page.")] = None,
) -> None:
    """Show a model's settings and the size of its parts."""
    from rich.console import Console

    from glassformer.files import write_text
    from glassformer.report.info import info_html, show_info

    if html is None:
        show_info(model, Console())
    else:
        write_text(html, info_html(model))
        _log.info("wrote %s", html)


@app.command()
def export(
    model: options.Model,
    to: Annotated[
        str, typer.Option(metavar="FORMAT", help="ctranslate2, or folder: a model folder in another precision.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder to write (default: the cache that `translate` reads).")
    ] = None,
    quantization: Annotated[str, typer.Option(metavar="TYPE", help="float32, int8, float16 or bfloat16.")] = "float32",
) -> None:
    """Export a model to CTranslate2, or to a smaller model folder."""
    if to not in ("ctranslate2", "folder"):
        raise UsageError(f"--to {to}: expected ctranslate2 or folder")

    from glassformer.convert.ctranslate2 import as_quantization, export_folder
    from glassformer.store.registry import find_model
    from glassformer.translate.engines.probe import load_cached_export

    kind = as_quantization(quantization)
    if to == "folder":
        from glassformer.store.folder import copy_model

        if out is None or kind == "int8":
            raise UsageError("--to folder needs --out FOLDER, and --quantization float32, float16 or bfloat16")
        copy_model(model, out, kind)
    elif out is None:
        out = load_cached_export(find_model(model), kind)
    else:
        export_folder(find_model(model), out, kind)
    typer.echo(out)
