"""Lists the parts of conditions, and the limits, that decided nothing in any test.

    .venv/bin/python -m tests.mutants.deciders RESULT tests/state tests/lifecycle

A part of a condition decides where the condition had another result without it; a limit does where its two
sides were equal. A mutant that drops a part which never decides, or moves such a limit, survives for certain:
one run of the tests finds all of them, where a draw finds a few. Tests run once and in this process; those
that compare logs or time may fail. RESULT keeps the marks, so that runs of several folders add up.
"""

# ruff: noqa: T201 - a program that reports

from __future__ import annotations

import ast
import mmap
import operator
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Final, NamedTuple

import pytest

from tests.mutants.areas import AREAS, NOT_JUDGES, ROOT, sources
from tests.mutants.probes import Hook

_CONDITION: Final = "__condition__"
_LIMIT: Final = "__limit__"
_ORDERS: Final = {
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge,
}  # fmt: skip
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_LATER: Final = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
"""Expressions that cannot stand in a function of their own."""


class Place(NamedTuple):
    """A part of a condition, or a limit."""

    path: str
    line: int
    text: str


class Marks:
    """Two bytes of each place: whether it was reached, and whether it decided."""

    def __init__(self, marks: bytearray | mmap.mmap) -> None:
        self._marks: Final = marks

    def condition(
        self, first: int, is_and: bool, as_bool: bool, *parts: Callable[[], object]
    ) -> object:
        """Return what a condition does, and mark the part that it ends with."""
        value: object = None
        place = 2 * first - 2
        for part in parts:
            place += 2
            self._marks[place] = 1
            before, value = value, part()
            if bool(value) is not is_and:
                break
        if not self._marks[place + 1]:
            rest = parts[place // 2 - first + 1 :]
            self._marks[place + 1] = _differs(
                value, lambda: _result(rest, is_and) if rest else before, as_bool=as_bool
            )
        return value

    def limit(self, place: int, order: str, left: object, right: object) -> object:
        """Return what a comparison does, and mark whether its sides are equal."""
        self._marks[2 * place] = 1
        if not self._marks[2 * place + 1]:
            equal = left == right
            self._marks[2 * place + 1] = bool(getattr(equal, "any", lambda: equal)())
        return _ORDERS[order](left, right)

    def idle(self, places: Sequence[Place]) -> Iterator[Place]:
        """Yield the places that were reached and decided nothing."""
        for number, place in enumerate(places):
            if self._marks[2 * number] and not self._marks[2 * number + 1]:
                yield place


def _result(parts: Sequence[Callable[[], object]], is_and: bool) -> object:
    value: object = None
    for part in parts:
        value = part()
        if bool(value) is not is_and:
            break
    return value


def _differs(value: object, without: Callable[[], object], *, as_bool: bool) -> bool:
    """Tell whether a condition has another result without a part; an error is one, too."""
    try:
        other = without()
        return bool(other) is not bool(value) if as_bool else bool(other != value)
    except Exception:  # the part keeps the next one from failing
        return True


class Instrument(ast.NodeTransformer):
    """Replaces conditions and limits inside functions by calls that mark what decides."""

    def __init__(self, path: str, places: list[Place]) -> None:
        self._path = path
        self._places = places
        self._depth = 0
        self._tests: set[int] = set()

    def visit(self, node: ast.AST) -> ast.AST:
        """Note which expressions are asked for no more than their truth."""
        tests = [getattr(node, "test", None), *getattr(node, "ifs", ())]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            tests.append(node.operand)
        if isinstance(node, ast.BoolOp) and id(node) in self._tests:
            tests += node.values
        self._tests.update(map(id, tests))
        if isinstance(node, _FUNCTIONS):
            self._depth += 1
            node.body = [self.visit(each) for each in node.body]
            self._depth -= 1
            return node
        return super().visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Turn each part into a function, so that the others can be asked for."""
        if not self._depth or not _may_wait(node):
            return self.generic_visit(node)
        first = len(self._places)
        self._places += [Place(self._path, part.lineno, ast.unparse(part)) for part in node.values]
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return _call(
            _CONDITION,
            ast.Constant(first),
            ast.Constant(isinstance(node.op, ast.And)),
            ast.Constant(id(node) in self._tests),
            *(ast.Lambda(args=nothing, body=self.visit(part)) for part in node.values),
        )

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Compare through the marks."""
        order = type(node.ops[0]).__name__
        if not self._depth or len(node.ops) != 1 or order not in _ORDERS:
            return self.generic_visit(node)
        self._places.append(Place(self._path, node.lineno, ast.unparse(node)))
        place = ast.Constant(len(self._places) - 1)
        sides = (self.visit(node.left), self.visit(node.comparators[0]))
        return _call(_LIMIT, place, ast.Constant(order), *sides)


def _may_wait(node: ast.AST) -> bool:
    return not any(
        isinstance(each, _LATER)
        or (isinstance(each, ast.comprehension) and each.is_async)
        or (isinstance(each, ast.Name) and each.id in {"super", "locals"})
        for each in ast.walk(node)
    )


def _call(name: str, *arguments: ast.AST) -> ast.Call:
    return ast.Call(func=ast.Name(name, ast.Load()), args=list(arguments), keywords=[])


def instrumented(source: str, path: str, places: list[Place]) -> CodeType:
    """Return the code of a module that marks what decides."""
    tree = Instrument(path, places).visit(ast.parse(source))
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def main(result: str, *tests: str) -> int:
    """Run tests, and print the places that decided nothing in this run or an earlier one."""
    places: list[Place] = []
    codes: dict[str, CodeType] = {}
    for paths in sources(ROOT, tuple(AREAS)).values():
        for path in paths:
            codes[str(ROOT / path)] = instrumented((ROOT / path).read_text("utf-8"), path, places)
    with Path(result).open("a+b") as file:
        file.truncate(2 * len(places))
        marks = Marks(mmap.mmap(file.fileno(), 2 * len(places)))
        hook = Hook([ROOT / area for area in AREAS], lambda _, path: codes[path])
        hook.globals.update({_CONDITION: marks.condition, _LIMIT: marks.limit})
        hook.install()
        left_out = [f"--ignore={path}" for path in NOT_JUDGES]
        with tempfile.TemporaryDirectory() as folder:
            own = ["-q", "--tb=no", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist"]
            pytest.main([*own, f"--basetemp={folder}/base", *left_out, *tests])
        for place in marks.idle(places):
            print(f"{place.path}:{place.line}  {place.text}")
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(*sys.argv[1:]))
