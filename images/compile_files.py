"""Compiles the Python files of a folder without the docstrings that nobody reads in a container.

Run by the Python of the image. A process holds the docstrings of all modules that it has loaded: 3 MiB in
other projects. Of ours those of commands are kept, which show them as help, and those of classes, which
describe kinds and defects. So that code is small too, `-X no_debug_ranges` leaves out which part of a line
an error is about; tracebacks name file and line.

    python3.13 -X no_debug_ranges -m images.compile_files FOLDER ROOT     names begin where ROOT is
"""

from __future__ import annotations

import ast
import marshal
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path

from images.lean_modules import LeanRule, apply_rule, drop_annotations, read_rules

_OURS = "karpenter_"
_IN_THEIR_PLACE = "."
"""Modules that change a docstring, or cut it, can do so with a short text, but often not with none."""
CHECKED_BY_NOBODY = (1).to_bytes(4, "little")
"""The flags of byte code that stands for its source, whatever that is (PEP 552)."""
_COMMANDS = "cli"
"""The folder of ours whose functions are documented for users."""
_UNREAD = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (*_UNREAD, ast.ClassDef)


def compile_file(
    path: Path,
    name: str,
    *,
    shortened: tuple[type[ast.AST], ...],
    annotated: bool = False,
    rule: LeanRule | None = None,
) -> None:
    """Write the byte code of a file beside it.

    It is not compared with the file, which never changes in an image: by time it would differ from build
    to build, by hash each start would read all sources.
    """
    source = path.read_bytes()
    tree = ast.parse(source, name)
    shorten_docstrings(tree, shortened)
    if not annotated:
        drop_annotations(tree)
    if rule:
        apply_rule(tree, rule)
    code = compile(tree, name, "exec", dont_inherit=True)
    target = Path(cache_from_source(str(path), optimization=""))
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(MAGIC_NUMBER + CHECKED_BY_NOBODY + source_hash(source) + marshal.dumps(code))


def shorten_docstrings(tree: ast.AST, kinds: tuple[type[ast.AST], ...] = _DOCUMENTED) -> None:
    """Replace each docstring of these kinds of nodes by one character."""
    for node in ast.walk(tree):
        if not isinstance(node, _DOCUMENTED) or not isinstance(node, kinds) or not node.body:
            continue
        first = node.body[0]
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            first.value.value = _IN_THEIR_PLACE


def main(folder: str, root: str) -> None:
    """Compile all files of a folder."""
    rules = read_rules()
    for path in sorted(Path(folder).rglob("*.py")):
        parts = path.relative_to(folder).parts
        rule = rules.get("/".join(parts))
        try:
            compile_file(
                path,
                f"/{path.relative_to(root)}",
                shortened=unread_docstrings(parts),
                annotated=is_command(parts),
                rule=rule,
            )
        except ValueError as error:
            raise ValueError(f"lean_modules.toml: {'/'.join(parts)} {error}") from error


def is_command(parts: tuple[str, ...]) -> bool:
    """Tell whether a file, named by its path's parts, may define commands, made of annotations."""
    return _COMMANDS in parts if _is_ours(parts) else bool({"typer", "click"} & {*parts})


def unread_docstrings(parts: tuple[str, ...]) -> tuple[type[ast.AST], ...]:
    """Return of what nodes of a file, named by its path's parts, the docstrings are not read."""
    if not _is_ours(parts):
        return _DOCUMENTED
    return () if _COMMANDS in parts else _UNREAD


def _is_ours(parts: tuple[str, ...]) -> bool:
    return any(part.startswith(_OURS) for part in parts)


if __name__ == "__main__":
    main(*sys.argv[1:])
