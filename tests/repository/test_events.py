"""Every Event is documented, and every documented Event can happen."""

from __future__ import annotations

import ast
import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "events.md"
REASON = re.compile(r"[A-Z][a-z]+(?:[A-Z][A-Za-z]*)?")
MAKERS = ("notice", "Notice", "_about")
NO_REASONS = {"Normal", "Warning", "Node", "NodeClaim"}


def documented() -> set[str]:
    rows = re.findall(r"^\| `([A-Za-z]+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return set(rows)


def in_code() -> set[str]:
    """Reasons given to whatever makes notices: by keyword, as a default, in a table, in place."""
    result: set[str] = set()
    for path in sorted((ROOT / "karpenter_core").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "otice" in text:
            result.update(chain.from_iterable(map(_reasons, ast.walk(ast.parse(text)))))
    return result


def _reasons(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if _makes_notices(name):
            given = [each.value for each in node.keywords if each.arg == "reason"]
            given += [] if name == "Notice" else node.args
            yield from _texts(given)
        case ast.FunctionDef(name=name) if _makes_notices(name):
            yield from _texts([each for each in node.args.kw_defaults if each is not None])
        case ast.AnnAssign(target=ast.Name(id="_EVENTS"), value=ast.Dict(values=rows)):
            yield from _texts([row.elts[1] for row in rows if isinstance(row, ast.Tuple)])
        case ast.Assign(targets=[ast.Name(id="_REASON")], value=value):
            yield from _texts([value])
        case _:
            return


def _makes_notices(name: str) -> bool:
    return any(maker in name for maker in MAKERS)


def _texts(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and REASON.fullmatch(text) and text not in NO_REASONS:
            yield text


def test_the_page_names_every_event_and_no_other():
    """Those of conditions, which are named after them, apart."""
    assert in_code() == documented()
