"""`karpenter plugin`: lists plug-ins, and generates a new provider.

`new` copies the distribution in `scaffold/`, a working provider for an imaginary cloud called
tinycloud, and replaces the name. So the checks of this project (style, types, the conformance kit)
also apply to generated providers.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.metadata import EntryPoint

__all__ = ["InstalledPlugin", "list_plugins", "register"]

SCAFFOLD: Final = Path(__file__).parent / "scaffold"
_NAME: Final = re.compile(r"[a-z][a-z0-9]{1,30}")
_PREFIX: Final = re.compile(r"[A-Z][A-Za-z0-9]{1,30}")
_SKIPPED: Final = frozenset({"__pycache__", ".pytest_cache", ".ruff_cache"})


class InstalledPlugin(NamedTuple):
    """One installed plug-in."""

    name: str
    origin: str
    """Its distribution and version."""
    entry_point: str
    contract_version: int | None
    """None for a plug-in that is no provider, or cannot be loaded."""
    kinds: tuple[str, ...]
    hooks: tuple[str, ...]
    problem: str


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    plugin = typer.Typer(no_args_is_help=True, help="List plug-ins, or generate a provider.")
    plugin.command("list")(_list)
    plugin.command("new")(_new)
    app.add_typer(plugin, name="plugin")


def list_plugins(
    points: Sequence[EntryPoint] | None = None,
) -> tuple[tuple[InstalledPlugin, ...], str]:
    """Return every installed plug-in, loaded alone, and why they cannot be loaded together.

    The reason is empty if they can.
    """
    from karpenter_core.errors import PluginError
    from karpenter_core.provider.host.manager import load_plugins
    from karpenter_core.provider.markers import PROJECT

    sorted_points = sorted(
        entry_points(group=PROJECT) if points is None else points, key=lambda p: (p.name, p.value)
    )
    listed = tuple(_load_one(point) for point in sorted_points)
    if any(plugin.problem for plugin in listed):
        return listed, ""
    try:
        load_plugins(entry_points=sorted_points).settings()
    except PluginError as error:
        return listed, str(error)
    return listed, ""


def _load_one(point: EntryPoint) -> InstalledPlugin:
    from karpenter_core.errors import PluginError
    from karpenter_core.provider import hookspecs
    from karpenter_core.provider.host.manager import load_plugins

    origin = f"{point.dist.name} {point.dist.version}" if point.dist else "unknown distribution"
    try:
        plugins = load_plugins(entry_points=[point])
        plugins.settings()
    except PluginError as error:
        return InstalledPlugin(point.name, origin, point.value, None, (), (), str(error))
    provider = plugins.providers.get(point.name)
    hooks = [hook for hook in vars(hookspecs) if hook.startswith("karpenter_")]
    return InstalledPlugin(
        name=point.name,
        origin=origin,
        entry_point=point.value,
        contract_version=provider.info.contract_version if provider else None,
        kinds=tuple(f"{kind}.{group}" for group, kind in provider.kinds) if provider else (),
        hooks=tuple(hook for hook in hooks if plugins.caller(hook, point.name) is not None),
        problem="",
    )


def _list(
    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="Output format.")
    ] = "table",
) -> None:
    """Show the installed plug-ins: the kinds they serve, and errors that prevent loading them.

    Exit code: 0 if all can be loaded together; 1 if not.
    """
    listed, clash = list_plugins()
    if output == "json":
        document = {"plugins": [plugin._asdict() for plugin in listed], "problem": clash}
        print(json.dumps(document, indent=2))
    else:
        _print(listed, clash)
    if clash or any(plugin.problem for plugin in listed):
        raise typer.Exit(1)


def _print(listed: Sequence[InstalledPlugin], clash: str) -> None:
    if not listed:
        print("no plug-in is installed")
        return
    rows = [("NAME", "DISTRIBUTION", "CONTRACT", "SERVES", "HOOKS")]
    for plugin in listed:
        version = "" if plugin.contract_version is None else str(plugin.contract_version)
        serves = "cannot be loaded" if plugin.problem else ", ".join(plugin.kinds) or "no NodeClass"
        rows.append((plugin.name, plugin.origin, version, serves, str(len(plugin.hooks))))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("   ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)).rstrip())
    for problem in (*(plugin.problem for plugin in listed), clash):
        if problem:
            print(f"\n{problem}")


def _new(
    name: Annotated[
        str, typer.Argument(help="Name of the provider: lower-case letters and digits.")
    ],
    prefix: Annotated[
        str, typer.Option(help="Prefix of its NodeClass kind, as in <prefix>NodeClass.")
    ] = "",
    output_dir: Annotated[
        Path | None, typer.Option(help="Folder to write; ./karpenter-provider-<name> by default.")
    ] = None,
) -> None:
    """Generate a distribution with a working provider that keeps the contract."""
    from karpenter_core.cli.written_files import writes_to
    from karpenter_core.errors import BadInputError

    if not SCAFFOLD.exists():
        raise BadInputError(
            "the files that a provider begins with are not installed, since container images have none; "
            "install karpenter-core with pip"
        )
    prefix = prefix or name.capitalize()
    if not _NAME.fullmatch(name):
        raise BadInputError(f'name "{name}": must be 2 to 31 lower-case letters and digits')
    if not _PREFIX.fullmatch(prefix):
        raise BadInputError(f'--prefix "{prefix}": must be letters and digits, a capital first')
    folder = output_dir or Path(f"karpenter-provider-{name}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInputError(f"{folder} exists already and is not empty")
    with writes_to(folder):
        for source in _scaffold_files():
            path = folder / _renamed(str(source.relative_to(SCAFFOLD)), name, prefix)
            path = path.with_name(".gitignore") if path.name == "gitignore" else path
            path.parent.mkdir(parents=True, exist_ok=True)
            text = source.read_text(encoding="utf-8")
            path.write_text(_renamed(text, name, prefix), encoding="utf-8")
    print(f"{folder} is a provider for {prefix}NodeClass. Next:\n")
    print(f"  pip install --editable '{folder}[test]'")
    print(f"  pytest --pyargs karpenter_core.testing.conformance --karpenter-provider={name}")
    print("  karpenter plugin list")


def _scaffold_files() -> Iterator[Path]:
    for path in sorted(SCAFFOLD.rglob("*")):
        if path.is_file() and not _SKIPPED & set(path.parts):
            yield path


def _renamed(text: str, name: str, prefix: str) -> str:
    for old, new in (("tinycloud", name), ("TinyCloud", prefix), ("TINYCLOUD", name.upper())):
        text = text.replace(old, new)
    return text
