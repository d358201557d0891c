"""Every function and class of the product has a use in it: what only tests call is dead code."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = (
    "karpenter_core",
    *(
        f"providers/{name}/karpenter_provider_{name}"
        for name in ("alibabacloud", "aws", "azure", "kwok")
    ),
)
OTHER_USERS = ("docs", "examples", "benchmarks", "providers/*/tools")
"""Folders whose programs may be the only users."""
FOR_OTHERS = ("/testing/", "/testing.py", "/sim/", "/simulated/", "/scaffold/")
"""Parts of the product that serve tests, also those of providers that are not in this repository."""
CALLED_BY_NAME = re.compile(
    r"hookimpl|hookspec|command|callback|register|route|overload|model_validator"
)
"""Decorators of what others find by its name."""
CALLED_BY_TEXTUAL = re.compile(r"(on|action)_\w+|compose|render_line")
"""Methods of screens and widgets that textual finds by their names."""
KEPT = {
    "enableCallbacks",  # the constructor of Highs calls it
    "redirect_request",  # urllib calls it
    "ignore_aliases",  # PyYAML calls it
    "load_file",  # botocore calls it
    "mark_capacity_type",  # of the kit: clouds tell shortages of each scope
}
WORD = re.compile(r"\w+")


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for found in ROOT.glob(folder):
            yield from sorted(found.rglob("*.py"))


def exports(tree: ast.Module) -> Iterator[str]:
    """Yield what `__all__` names: naming something there is no use of it."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(each, ast.Name) and each.id == "__all__" for each in targets):
                yield from (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))


def definitions(tree: ast.Module) -> Iterator[str]:
    """Yield the names of functions, methods and classes that only a use can call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            is_protocol = isinstance(node, ast.ClassDef) and any(
                "Protocol" in ast.unparse(base) for base in node.bases
            )
            is_called = any(CALLED_BY_NAME.search(ast.unparse(d)) for d in node.decorator_list)
            if not (is_protocol or is_called or node.name.startswith("__")):
                yield node.name


def test_every_function_and_class_of_the_product_is_used_in_it():
    uses: Counter[str] = Counter()
    defined: dict[str, Path] = {}
    for path in sources(*CODE):
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        uses.update(WORD.findall(text))
        uses.subtract(exports(tree))
        if not any(part in str(path) for part in FOR_OTHERS):
            names = list(definitions(tree))
            if "from textual" in text:
                names = [name for name in names if not CALLED_BY_TEXTUAL.fullmatch(name)]
            uses.subtract(names)
            defined |= dict.fromkeys(names, path)
    for path in sources(*OTHER_USERS):
        uses.update(WORD.findall(path.read_text("utf-8")))
    entry_points = [ROOT / "pyproject.toml", *ROOT.glob("providers/*/pyproject.toml")]
    uses.update(word for path in entry_points for word in WORD.findall(path.read_text("utf-8")))

    assert len(defined) > 3000
    unused = {
        name: str(path.relative_to(ROOT)) for name, path in defined.items() if uses[name] <= 0
    }
    assert unused.keys() - KEPT == set(), unused
