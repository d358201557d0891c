"""The shell commands of the simulated cloud."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    """Add `dump` and `catalogue` to a program."""
    import typer

    @app.command(epilog="Examples:\n\nkarpenter kwok dump /var/lib/karpenter/kwok.sqlite3")
    def dump(  # pyright: ignore[reportUnusedFunction] - typer keeps it
        file: str = typer.Argument(help="State file of the simulated cloud."),
    ) -> None:
        """Print every instance, live and gone, and how often each token launched one."""
        from datetime import UTC, datetime

        from karpenter_core.errors import SettingsError
        from karpenter_provider_kwok.dump import dump_file

        try:
            state = dump_file(file, now=datetime.now(UTC))
        except SettingsError as error:
            typer.echo(f"karpenter: {error}", err=True)
            raise typer.Exit(2) from error
        sys.stdout.write(json.dumps(state, indent=2) + "\n")

    @app.command(epilog="Examples:\n\nkarpenter kwok catalogue > instance-types.json")
    def catalogue() -> None:  # pyright: ignore[reportUnusedFunction] - typer keeps it
        """Print the shipped catalogue, to start one's own from."""
        from karpenter_provider_kwok.catalogue_default import default_catalogue_text

        sys.stdout.write(default_catalogue_text() + "\n")
