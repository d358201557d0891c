"""Draws mutants: small wrong changes of the product, as people make them.

A seed decides the sample. Each package gets its share; within a package the kind of change is drawn
first and the place second, so that rare kinds are tried as often as the operators that are everywhere.
"""

from __future__ import annotations

import ast
import difflib
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.areas import sources

KINDS: Final = {
    "condition negated": 3,
    "condition dropped": 3,
    "not dropped": 2,
    "and/or exchanged": 2,
    "comparison moved": 3,
    "constant moved": 2,
    "flag turned": 2,
    "arithmetic exchanged": 1,
    "call exchanged": 1,
    "statement removed": 4,
    "early exit removed": 3,
    "branch skipped": 3,
    "keyword dropped": 2,
    "result dropped": 2,
    "error swallowed": 2,
    "member exchanged": 2,
}
"""Weight of each kind of change."""

_COMPARISONS: Final = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_ARITHMETIC: Final = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*"}
_CALLS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_EMPTY: Final = {
    "bool": "False", "int": "0", "float": "0.0", "str": '""', "bytes": 'b""',
    "tuple": "()", "list": "[]", "dict": "{}", "set": "set()", "frozenset": "frozenset()",
    "Sequence": "()", "Mapping": "{}", "Collection": "()", "Iterable": "()", "Iterator": "iter(())",
}  # fmt: skip
_SAID: Final = ("log", "logger", "_log", "_logger", "warnings")
"""Names of objects whose methods only tell people something."""
_SAYING: Final = frozenset({"debug", "info", "warning", "error", "exception", "labels", "observe"})
_WORDS: Final = frozenset({"message", "log_field", "description", "help", "hint", "indent"})
"""Keywords of texts for people."""
_UNTOUCHED: Final = frozenset({"__repr__", "__str__"})
_DECLARED: Final = frozenset({"Counter", "Gauge", "Histogram", "TypeVar", "NewType", "Field"})
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_DECLARATIONS: Final = frozenset(
    {"annotation", "returns", "decorator_list", "type_params", "bases"}
)
"""Fields of nodes that type checkers judge; the options of classes are another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change: the text between two offsets of a module is replaced."""

    path: str
    kind: str
    line: int
    start: int
    end: int
    new: str
    function: str
    """The outermost function around the change, with its classes; empty in a module's body."""

    def apply(self, source: str) -> str:
        """Return the module with the change; offsets count bytes, as Python's parser does."""
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()

    def diff(self, source: str) -> str:
        """Return the change as a diff without context."""
        old, new = source.splitlines(), self.apply(source).splitlines()
        lines = difflib.unified_diff(old, new, n=0, lineterm="")
        return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def draw(root: Path, areas: Mapping[str, int], *, seed: int, count: int) -> list[Mutant]:
    """Draw that many mutants, at most one of a line; the same seed draws the same ones."""
    rng = random.Random(seed)
    result = sources(root, tuple(areas))
    members = enum_members(root, result)
    total = sum(areas.values())
    drawn: list[Mutant] = []
    owed = 0.0
    for area, share in sorted(areas.items()):
        owed += count * share / total
        draw_count = round(owed) - len(drawn)
        by_kind: dict[str, list[Mutant]] = defaultdict(list)
        texts = {path: (root / path).read_text("utf-8") for path in result[area]}
        for path, text in texts.items():
            for mutant in mutants_of(path, text, members):
                by_kind[mutant.kind].append(mutant)
        drawn += _pick(rng, by_kind, draw_count, texts)
    return drawn


def _pick(
    rng: random.Random,
    by_kind: Mapping[str, list[Mutant]],
    draw_count: int,
    texts: Mapping[str, str],
) -> list[Mutant]:
    picked: list[Mutant] = []
    taken: set[tuple[str, int]] = set()
    left = {kind: rng.sample(by_kind[kind], len(by_kind[kind])) for kind in sorted(by_kind)}
    while len(picked) < draw_count and any(left.values()):
        kinds = [kind for kind in left if left[kind]]
        kind = rng.choices(kinds, [KINDS[kind] for kind in kinds])[0]
        mutant = left[kind].pop()
        place = (mutant.path, mutant.line)
        if place not in taken and _is_valid(mutant, texts[mutant.path]):
            taken.add(place)
            picked.append(mutant)
    return sorted(picked, key=lambda mutant: (mutant.path, mutant.line))


def enum_members(root: Path, found: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the members of each enum of the product, by its name."""
    members: dict[str, list[str]] = {}
    for path in sorted(path for paths in found.values() for path in paths):
        for node in ast.walk(ast.parse((root / path).read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and any("Enum" in ast.unparse(b) for b in node.bases):
                members[node.name] = [
                    target.id
                    for statement in node.body
                    if isinstance(statement, ast.Assign)
                    for target in statement.targets
                    if isinstance(target, ast.Name)
                ]
    return members


def mutants_of(path: str, source: str, members: Mapping[str, Sequence[str]]) -> Iterator[Mutant]:
    """Return every mutant of a module, in the order of the text."""
    module = _Module(path, source, members)
    seen: set[tuple[int, int, str]] = set()
    for mutant in module.visit(ast.parse(source), ()):
        place = (mutant.start, mutant.end, mutant.new)
        if place not in seen:
            seen.add(place)
            yield mutant


def _is_valid(mutant: Mutant, source: str) -> bool:
    try:
        compile(mutant.apply(source), mutant.path, "exec")
    except SyntaxError:
        return False
    return True


class _Module:
    """Walks the syntax tree of a module, past everything that no behaviour depends on."""

    def __init__(self, path: str, source: str, members: Mapping[str, Sequence[str]]) -> None:
        self._path = path
        self._data = source.encode()
        self._members = members
        self._starts = [0]
        for line in self._data.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)

    def visit(self, node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[Mutant]:
        """Yield the mutants of a node and of all below it."""
        if _skipped(node):
            return
        for kind, start, end, new in self._changes(node, around):
            functions = [outer for outer in around if isinstance(outer, _FUNCTIONS)]
            names = []
            for outer in (*around, node):
                if isinstance(outer, ast.ClassDef):
                    names.append(outer.name)
                elif isinstance(outer, _FUNCTIONS):
                    names.append(outer.name)
                    break
            body = bool(functions) and start >= self._at(functions[0].body[0])[0]
            yield Mutant(
                path=self._path,
                kind=kind,
                line=self._data.count(b"\n", 0, start) + 1,
                start=start,
                end=end,
                new=new,
                function=".".join(names) if body else "",
            )
        inside = (*around, node)
        for name, value in ast.iter_fields(node):
            if name in _DECLARATIONS or (name == "keywords" and isinstance(node, ast.ClassDef)):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _checks_lengths(node, child):
                    yield from self.visit(child, inside)

    def _at(self, node: ast.AST) -> tuple[int, int]:
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.AST) -> str:
        start, end = self._at(node)
        return self._data[start:end].decode()

    def _changes(
        self, node: ast.AST, around: tuple[ast.AST, ...]
    ) -> Iterator[tuple[str, int, int, str]]:
        if isinstance(node, ast.expr):
            for kind, place, new in self._of_expression(node):
                yield kind, *place, new
        elif isinstance(node, ast.stmt):
            for kind, place, new in self._of_statement(node, around):
                yield kind, *place, new
        elif isinstance(node, ast.ExceptHandler) and not _does_nothing(node, around):
            start, end = self._at(node.body[0])[0], self._at(node.body[-1])[1]
            yield "error swallowed", start, end, "pass"
        elif isinstance(node, ast.comprehension):
            for condition in node.ifs:
                yield "condition negated", *self._at(condition), f"not ({self._text(condition)})"

    def _of_expression(self, node: ast.expr) -> Iterator[tuple[str, tuple[int, int], str]]:
        at = self._at(node)
        match node:
            case ast.UnaryOp(op=ast.Not()):
                yield "not dropped", at, self._text(node.operand)
            case ast.BoolOp():
                for kind, new in self._of_conditions(node):
                    yield kind, at, new
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                new = f"{self._text(left)} {_COMPARISONS[type(operator)]} {self._text(right)}"
                yield "comparison moved", at, new
            case ast.BinOp(left=left, op=operator, right=right) if type(
                operator
            ) in _ARITHMETIC and not _is_text(node):
                other = _ARITHMETIC[type(operator)]
                yield (
                    "arithmetic exchanged",
                    at,
                    f"({self._part(left)} {other} {self._part(right)})",
                )
            case ast.Call():
                yield from self._of_call(node)
            case ast.IfExp():
                yield "condition negated", self._at(node.test), f"not ({self._text(node.test)})"
            case ast.Constant() | ast.Attribute():
                for kind, new in self._of_value(node):
                    yield kind, at, new
            case _:
                pass

    def _of_conditions(self, node: ast.BoolOp) -> Iterator[tuple[str, str]]:
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        texts = [self._part(value) for value in node.values]
        yield "and/or exchanged", f"({f' {other} '.join(texts)})"
        for index in range(len(texts)):
            kept = texts[:index] + texts[index + 1 :]
            yield "condition dropped", f"({f' {word} '.join(kept)})"

    def _of_value(self, node: ast.expr) -> Iterator[tuple[str, str]]:
        match node:
            case ast.Constant(value=bool() as flag):
                yield "flag turned", str(not flag)
            case ast.Constant(value=int() | float() as number):
                yield "constant moved", f"{number + 1}"
                if number >= 1:
                    yield "constant moved", f"{number - 1}"
            case ast.Attribute(value=ast.Name(id=name), attr=member):
                members = self._members.get(name, ())
                others = [other for other in members if other != member]
                if member in members and others:
                    other = others[members.index(member) % len(others)]
                    yield "member exchanged", f"{name}.{other}"
            case _:
                pass

    def _of_statement(
        self, node: ast.stmt, around: tuple[ast.AST, ...]
    ) -> Iterator[tuple[str, tuple[int, int], str]]:
        at = self._at(node)
        inside = any(isinstance(outer, _FUNCTIONS) for outer in around)
        match node:
            case ast.Expr(value=ast.Call() | ast.Await() | ast.YieldFrom()):
                yield "statement removed", at, "pass"
            case ast.AugAssign() | ast.Delete():
                yield "statement removed", at, "pass"
            case ast.Assign() if inside and not any(
                isinstance(target, ast.Name | ast.Tuple) for target in node.targets
            ):
                yield "statement removed", at, "pass"
            case ast.If():
                yield "condition negated", self._at(node.test), f"not ({self._text(node.test)})"
                yield "branch skipped", self._at(node.test), "False"
            case ast.While() if not isinstance(node.test, ast.Constant):
                yield "condition negated", self._at(node.test), f"not ({self._text(node.test)})"
            case ast.Return() | ast.Continue() | ast.Break() | ast.Raise() if isinstance(
                around[-1], ast.If | ast.ExceptHandler | ast.For
            ) and not (_is_nothing(node, around) and _is_last(around)):
                yield "early exit removed", at, "pass"
            case _:
                pass
        if isinstance(node, ast.Return) and node.value is not None:
            function = [outer for outer in around if isinstance(outer, _FUNCTIONS)][-1:]
            empty = _empty_result(function[0].returns if function else None)
            if empty != self._text(node.value):
                yield "result dropped", self._at(node.value), empty

    def _part(self, node: ast.expr) -> str:
        text = self._text(node)
        plain = ast.Name | ast.Attribute | ast.Call | ast.Compare | ast.Constant | ast.Subscript
        return text if isinstance(node, plain) and "\n" not in text else f"({text})"

    def _of_call(self, node: ast.Call) -> Iterator[tuple[str, tuple[int, int], str]]:
        if isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            yield "call exchanged", self._at(node.func), _CALLS[node.func.id]
        if _name(node.func) in _DECLARED:
            return
        arguments = sorted([*node.args, *(each.value for each in node.keywords)], key=self._at)
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg in _WORDS or _checks_lengths(node, keyword):
                continue
            start, end = self._at(keyword)
            later = [each for each in arguments if self._at(each)[0] > end]
            if later:
                following = [k for k in node.keywords if self._at(k)[0] > end]
                end = self._at(following[0])[0] if following else self._at(later[0])[0]
            else:
                while self._data[end : end + 1] in {b",", b" "}:
                    end += 1
            yield "keyword dropped", (start, end), ""


def _skipped(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            marks = {_name(each) for each in node.decorator_list}
            return node.name in _UNTOUCHED or bool(marks & {"overload", "abstractmethod"})
        case ast.ClassDef():
            return any(_name(base) == "Protocol" for base in node.bases)
        case ast.If(test=test):
            return _name(test) == "TYPE_CHECKING" or _only_says_something(node)
        case ast.keyword(arg=name):
            return name in _WORDS
        case ast.Call(func=function):
            return _name(function) in {"cast", "TypeVar"} or _name(function).endswith("Error")
        case _:
            return _only_says(node)


def _checks_lengths(call: ast.AST, node: ast.AST) -> bool:
    """Return whether a node is the `strict=True` of `zip`, which is an assertion."""
    match node:
        case ast.keyword(arg="strict", value=ast.Constant(value=True)):
            return _name(call) == "zip"
        case _:
            return False


def _only_says(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Await(value=ast.Call(func=function)) | ast.Call(func=function)):
            return _tells(function) or _name(function) == "assert_never"
        case ast.Expr(value=ast.Constant()) | ast.Delete(targets=[ast.Name()]):
            return True  # a docstring, or an argument that an interface brings and nobody uses
        case (
            ast.Assign(value=ast.Call(func=function)) | ast.AnnAssign(value=ast.Call(func=function))
        ):
            return _name(function) in _DECLARED or _name(function) == "get_logger"
        case _:
            return False


def _only_says_something(choice: ast.If) -> bool:
    """Return whether a choice is between saying something and nothing, and its test changes nothing."""
    changes = (ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)
    return all(map(_only_says, (*choice.body, *choice.orelse))) and not any(
        isinstance(each, changes) for each in ast.walk(choice.test)
    )


def _tells(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return _name(function.value) in _SAID or function.attr in _SAYING
    return False


def _name(node: ast.AST | None) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
        case ast.Call(func=function):
            return _name(function)
        case ast.Subscript(value=value):
            return _name(value)
        case _:
            return ""


def _does_nothing(handler: ast.ExceptHandler, around: tuple[ast.AST, ...]) -> bool:
    """Return whether an error is swallowed already: nothing happens, or something is said."""
    match handler.body:
        case [ast.Pass() | ast.Continue()]:
            return True
        case [statement] if _is_nothing(statement, around):
            return _is_last((*around, handler))
        case body:
            return all(map(_only_says, body))


def _is_nothing(statement: ast.stmt, around: Sequence[ast.AST]) -> bool:
    """Return whether a statement returns nothing, or False where that is asked for: both count as no."""
    match statement:
        case ast.Return(value=None | ast.Constant(value=None)):
            return True
        case ast.Return(value=ast.Constant(value=False)):
            functions = [outer for outer in around if isinstance(outer, _FUNCTIONS)]
            return bool(functions) and _name(functions[-1].returns) == "bool"
        case _:
            return False


def _is_last(around: tuple[ast.AST, ...]) -> bool:
    """Return whether a function ends behind the innermost of these nodes, a handler of errors."""
    match around:
        case (
            *_,
            ast.FunctionDef() | ast.AsyncFunctionDef() as function,
            ast.Try() as tried,
            ast.ExceptHandler(),
        ):
            return function.body[-1] is tried and not tried.finalbody
        case _:
            return False


def _is_text(node: ast.BinOp) -> bool:
    texts = ast.JoinedStr | ast.List | ast.Tuple
    return any(
        isinstance(side, texts) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def _empty_result(returns: ast.expr | None) -> str:
    if returns is None or "None" in ast.unparse(returns):
        return "None"
    return _EMPTY.get(_name(returns), "None")
