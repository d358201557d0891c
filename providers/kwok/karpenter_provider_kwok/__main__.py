"""Commands `python -m karpenter_provider_kwok dump FILE`, `catalogue`."""

from __future__ import annotations

import typer

from karpenter_provider_kwok.commands import add_commands

app = typer.Typer(no_args_is_help=True, add_completion=False)
add_commands(app)
app()
