"""`karpenter crds`: the CustomResourceDefinitions, rendered from the models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["crds"]


def crds(
    provider: Annotated[
        list[str] | None,
        typer.Option(help="Also those of this provider; may be given several times."),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(help="Write one file each into this folder instead of printing."),
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions that this version needs."""
