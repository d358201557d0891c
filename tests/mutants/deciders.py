"""Lists the parts of conditions, limits, numbers and defaults that decided nothing in any test.

    .venv/bin/python -m tests.mutants.deciders RESULT tests/state tests/lifecycle

A part of a condition decides where the condition had another result without it; a limit does where its two
sides were equal, a number where the comparison had another result with the next one, the default of `get` where
the key was missing, and `min` or `any` where `max` or `all` had another result. A mutant that drops or moves what
never decides survives for certain: one run of the tests finds all of them, where a draw finds a few. Tests run once and in this process; those
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Final, NamedTuple

import pytest

from tests.mutants.areas import AREAS, NOT_JUDGES, ROOT, sources
from tests.mutants.probes import Hook

_CONDITION: Final = "__condition__"
_LIMIT: Final = "__limit__"
_NUMBER: Final = "__number__"
_DEFAULT: Final = "__default__"
_CHOICE: Final = "__choice__"
_ORDERS: Final = {
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge,
}  # fmt: skip
_COMPARED: Final = {**_ORDERS, "Eq": operator.eq, "NotEq": operator.ne}
_OTHER: Final[dict[object, Callable[..., object]]] = {min: max, max: min, any: all, all: any}
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_LATER: Final = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
"""Expressions that cannot stand in a function of their own."""
_NEXT: Final = (1, -1)
"""The moves of a number; one below 1 is moved up only."""


class Place(NamedTuple):
    """A part of a condition, a limit, a number, a default, or a choice."""

    path: str
    line: int
    text: str


class Marks:
    """Two bytes of each place: whether it was reached, and whether it decided."""

    def __init__(self, marks: bytearray | mmap.mmap) -> None:
        self._marks: Final = marks

    def functions(self) -> dict[str, object]:
        """Return the functions that an instrumented module calls, by name."""
        return {
            _CONDITION: self.condition,
            _LIMIT: self.limit,
            _NUMBER: self.number,
            _DEFAULT: self.default,
            _CHOICE: self.choice,
        }

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
            self._marks[2 * place + 1] = _are_equal(left, right)
        return _ORDERS[order](left, right)

    def number(
        self, first: int, moved: Sequence[tuple[int, int]], orders: Sequence[str], *sides: object
    ) -> object:
        """Return what a comparison does, and mark the numbers whose moves change that.

        `moved` are the sides that are numbers, each with its move, in the order of their places; a move
        by 0 asks whether both sides are equal.
        """
        result = _compare(orders, sides)
        for place, (side, move) in enumerate(moved, first):
            self._marks[2 * place] = 1
            if not move:
                self._marks[2 * place + 1] |= _are_equal(sides[0], sides[1])
            elif not self._marks[2 * place + 1]:
                others = list(sides)
                others[side] += move  # pyright: ignore[reportOperatorIssue] - a number
                self._marks[2 * place + 1] = _differs(
                    result, lambda others=others: _compare(orders, others), as_bool=False
                )
        return result

    def default(
        self, place: int, found: Mapping[object, object], key: object, other: object
    ) -> object:
        """Return what `get` does, and mark whether the key was missing."""
        self._marks[2 * place] = 1
        self._marks[2 * place + 1] |= key not in found
        return found.get(key, other)

    def choice(
        self, place: int, function: Callable[..., object], *values: object, **options: object
    ) -> object:
        """Return what `min`, `max`, `any` or `all` does, and mark whether its opposite differs."""
        if function not in _OTHER:
            return function(*values, **options)
        if len(values) == 1:
            values = (list(values[0]),)  # pyright: ignore[reportArgumentType] - an iterable
        self._marks[2 * place] = 1
        result = function(*values, **options)
        if not self._marks[2 * place + 1]:
            self._marks[2 * place + 1] = _differs(
                result, lambda: _OTHER[function](*values, **options), as_bool=False
            )
        return result

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


def _are_equal(left: object, right: object) -> bool:
    """Tell whether two sides are equal; of arrays, whether some of their values are."""
    equal = left == right
    return bool(getattr(equal, "any", lambda: equal)())


def _compare(orders: Sequence[str], sides: Sequence[object]) -> object:
    result: object = True
    for number, order in enumerate(orders):
        if number and not result:
            break
        result = _COMPARED[order](sides[number], sides[number + 1])
    return result


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in {int, float}


class Instrument(ast.NodeTransformer):
    """Replaces conditions, comparisons and choices inside functions by calls that mark what decides."""

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
        """Compare through the marks: with the next numbers as well, or looking for equal sides."""
        orders = [type(each).__name__ for each in node.ops]
        values = [node.left, *node.comparators]
        moved = [
            (side, move)
            for side, value in enumerate(values)
            if isinstance(value, ast.Constant) and _is_number(value)
            for move in _NEXT
            if move > 0 or value.value >= 1  # pyright: ignore[reportOperatorIssue] - a number
        ]
        if not self._depth or not _COMPARED.keys() >= set(orders):
            return self.generic_visit(node)
        if moved and (len(orders) == 1 or _may_wait(node)):
            first, text = len(self._places), ast.unparse(node)
            if len(orders) == 1 and orders[0] in _ORDERS:
                moved.append((0, 0))
            self._places += [
                Place(
                    self._path,
                    node.lineno,
                    f"{text}: {ast.unparse(values[side])} {move:+}" if move else text,
                )
                for side, move in moved
            ]
            made = ast.parse(repr((moved, orders)), mode="eval").body
            assert isinstance(made, ast.Tuple)
            return _call(
                _NUMBER, ast.Constant(first), *made.elts, *(self.visit(each) for each in values)
            )
        order = orders[0]
        if len(orders) != 1 or order not in _ORDERS:
            return self.generic_visit(node)
        self._places.append(Place(self._path, node.lineno, ast.unparse(node)))
        place = ast.Constant(len(self._places) - 1)
        sides = (self.visit(node.left), self.visit(node.comparators[0]))
        return _call(_LIMIT, place, ast.Constant(order), *sides)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Look up and choose through the marks."""
        match node:
            case ast.Call(
                func=ast.Attribute(value=found, attr="get"), args=[key, ast.Constant() as default]
            ) if self._depth and (_is_number(default) or isinstance(default.value, bool)):
                arguments: list[ast.AST] = [found, key, default]
                name = _DEFAULT
            case ast.Call(func=ast.Name(id="min" | "max" | "any" | "all") as function) if (
                self._depth and not any(isinstance(each, ast.Starred) for each in node.args)
            ):
                arguments = [function, *node.args]
                name = _CHOICE
            case _:
                return self.generic_visit(node)
        self._places.append(Place(self._path, node.lineno, ast.unparse(node)))
        place = ast.Constant(len(self._places) - 1)
        call = _call(name, place, *(self.visit(each) for each in arguments))
        call.keywords = [self.visit(each) for each in node.keywords]  # pyright: ignore[reportAttributeAccessIssue] - visits keep them
        return call


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
        hook.globals.update(marks.functions())
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
