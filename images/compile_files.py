"""Compiles the Python files of a folder without the docstrings of other projects.

Run by the Python of the image. Nobody reads docstrings in a container, but a process holds those of all
modules that it has loaded: 3 MiB of the smallest one. Ours are kept: commands show them as help.

    python3.13 images/compile_files.py FOLDER ROOT     names in byte code begin where ROOT is
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
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def compile_file(path: Path, name: str, *, keeps_docstrings: bool) -> None:
    """Write the byte code of a file beside it.

    It is not compared with the file, which never changes in an image: by time it would differ from build
    to build, by hash each start would read all sources.
    """
    source = path.read_bytes()
    tree = ast.parse(source, name)
    if not keeps_docstrings:
        shorten_docstrings(tree)
    code = compile(tree, name, "exec", dont_inherit=True)
    target = Path(cache_from_source(str(path), optimization=""))
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(MAGIC_NUMBER + CHECKED_BY_NOBODY + source_hash(source) + marshal.dumps(code))


def shorten_docstrings(tree: ast.AST) -> None:
    """Replace each docstring of a module by one character."""
    for node in ast.walk(tree):
        if not isinstance(node, _DOCUMENTED) or not node.body:
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
        is_ours = any(part.startswith(_OURS) for part in path.relative_to(folder).parts)
        compile_file(path, name, keeps_docstrings=is_ours)


if __name__ == "__main__":
    main(*sys.argv[1:])
