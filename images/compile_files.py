"""Compiles the Python files of a folder without the docstrings that nobody reads in a container.

Run by the Python of the image. A process holds the docstrings of all modules that it has loaded: 3 MiB in
other projects. Of ours those of commands are kept, which show them as help, and those of classes, which
describe kinds and defects. So that code is small too, `-X no_debug_ranges` leaves out which part of a line
an error is about; tracebacks name file and line.

    python3.13 -X no_debug_ranges images/compile_files.py FOLDER ROOT     names begin where ROOT is
"""

from __future__ import annotations

import ast
import marshal
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path

_OURS = "karpenter_"
_IN_THEIR_PLACE = "."
"""Modules that change a docstring, or cut it, can do so with a short text, but often not with none."""
CHECKED_BY_NOBODY = (1).to_bytes(4, "little")
"""The flags of byte code that stands for its source, whatever that is (PEP 552)."""
_COMMANDS = "cli"
"""The folder of ours whose functions are documented for users."""
_UNREAD = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (*_UNREAD, ast.ClassDef)


def compile_file(path: Path, name: str, *, shortened: tuple[type[ast.AST], ...]) -> None:
    """Write the byte code of a file beside it.

    It is not compared with the file, which never changes in an image: by time it would differ from build
    to build, by hash each start would read all sources.
    """
    source = path.read_bytes()
    tree = ast.parse(source, name)
    shorten_docstrings(tree, shortened)
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
    for path in sorted(Path(folder).rglob("*.py")):
        name = f"/{path.relative_to(root)}"
        parts = path.relative_to(folder).parts
        compile_file(path, name, shortened=unread_docstrings(parts))


def unread_docstrings(parts: tuple[str, ...]) -> tuple[type[ast.AST], ...]:
    """Return of what nodes of a file, named by its path's parts, the docstrings are not read."""
    if not any(part.startswith(_OURS) for part in parts):
        return _DOCUMENTED
    return () if _COMMANDS in parts else _UNREAD


if __name__ == "__main__":
    main(*sys.argv[1:])
