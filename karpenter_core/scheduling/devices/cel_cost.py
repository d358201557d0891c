"""Estimates the cost of a CEL expression; refuses one that costs too much.

The API server refuses such a selector by its own estimate, so that none comes from a cluster. Files,
which offline programs read, may have any. The CEL library has no limit of its own. The estimate is an
upper bound of the elements and characters that an evaluation makes, and coarser than the API server's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MAX_COST", "check_cost"]

MAX_COST: Final = 10_000_000
"""About five seconds. The API server's limit is 1,000,000 of its own, finer units."""

_UNKNOWN: Final = 64
"""Size of a value that is not written out: a string or the attributes of a device, by API limit."""
_MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})
_MULTIPLYING: Final = frozenset({"replace", "join"})
"""Functions that insert their argument at each character or element."""
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_TOKEN: Final = re.compile(
    r"""(?P<text>[rRbB]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''
    |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))|//[^\n]*|\s+
    |(?P<number>0x[0-9a-fA-F]+|\d+)|(?P<word>[A-Za-z_]\w*)|(?P<sign>.)""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class _Group:
    """The contents of brackets, parted at the commas."""

    opening: str
    parts: tuple[tuple[_Item, ...], ...]


_Item: TypeAlias = "_Token | _Group"


@dataclass(slots=True)
class _Value:
    """A value: the elements and characters that it may have, and what it costs to make it."""

    size: int = 0
    cost: int = 0


def check_cost(expression: str) -> None:
    """Refuse an expression that may cost too much.

    Raises:
        ValueError: it may.
    """
    try:
        cost = _measured(_parsed(expression), {}).cost
    except RecursionError:
        cost = MAX_COST + 1
    if cost > MAX_COST:
        raise ValueError("it may cost more than an API server allows: use fewer or shorter loops")


def _parsed(expression: str) -> tuple[_Item, ...]:
    """Return tokens and groups; brackets that do not match are closed at the end."""
    stack: list[tuple[str, list[list[_Item]]]] = [("", [[]])]
    for match in _TOKEN.finditer(expression):
        kind, text = match.lastgroup, match[0]
        if kind is None:
            continue
        if text in _CLOSING:
            stack.append((text, [[]]))
        elif text in _CLOSING.values() and len(stack) > 1:
            _close(stack)
        elif text == ",":
            stack[-1][1].append([])
        else:
            stack[-1][1][-1].append(_Token(kind, text))
    while len(stack) > 1:
        _close(stack)
    return tuple(item for part in stack[0][1] for item in part)


def _close(stack: list[tuple[str, list[list[_Item]]]]) -> None:
    opening, parts = stack.pop()
    stack[-1][1][-1].append(_Group(opening, tuple(tuple(part) for part in parts if part)))


def _measured(items: tuple[_Item, ...], sizes: Mapping[str, int]) -> _Value:
    """Measure an expression; `sizes` are those of its variables."""
    total, operand = _Value(), _Value()
    is_open = False
    for position, item in enumerate(items):
        if isinstance(item, _Group):
            before = items[position - 1] if position else None
            called = before.text if isinstance(before, _Token) and before.kind == "word" else ""
            operand = _applied(operand, item, called, sizes, is_open=is_open)
            is_open = True
        elif item.kind == "sign" and item.text != ".":
            total = _Value(total.size + operand.size, total.cost + operand.cost)
            operand, is_open = _Value(), False
        elif item.kind != "sign" and not is_open:
            operand, is_open = _Value(_size_of(item, sizes), 1), True
    return _Value(total.size + operand.size, total.cost + operand.cost)


def _size_of(token: _Token, sizes: Mapping[str, int]) -> int:
    if token.kind == "word":
        return sizes.get(token.text, _UNKNOWN)
    return len(token.text) if token.kind == "text" else 1


def _applied(
    operand: _Value, group: _Group, called: str, sizes: Mapping[str, int], *, is_open: bool
) -> _Value:
    """Measure a group after an operand: a call or an index; without one, a literal or brackets."""
    if group.opening == "(" and is_open and (variable := _variable_of(group, called)):
        return _bound(operand, group, called, variable, sizes)
    parts = [_measured(part, sizes) for part in group.parts]
    size, cost = sum(max(part.size, 1) for part in parts), sum(part.cost for part in parts)
    if not is_open:
        return _Value(size, cost + 1)
    if group.opening == "[":
        return _Value(operand.size, operand.cost + cost + 1)
    if called == "range":
        size = _literal_number(group)
    elif called in _MULTIPLYING:
        inserted = parts[1:] if called == "replace" else parts
        size = operand.size * (1 + sum(part.size for part in inserted))
    else:
        size += operand.size
    return _Value(size, operand.cost + cost + size)


def _variable_of(group: _Group, called: str) -> str:
    """Return the variable of a macro; empty for a function."""
    if called not in {*_MACROS, "bind"} or len(group.parts) < 2:  # noqa: PLR2004 - variable and body
        return ""
    first = group.parts[0][0]
    return first.text if isinstance(first, _Token) and first.kind == "word" else ""


def _bound(
    operand: _Value, group: _Group, called: str, variable: str, sizes: Mapping[str, int]
) -> _Value:
    """Measure a macro, whose last parts are evaluated with its variable."""
    if called == "bind":
        value = _measured(group.parts[1], sizes)
        bodies, times = group.parts[2:], 1
    else:
        value, bodies, times = operand, group.parts[1:], operand.size
    inner = {**sizes, variable: value.size}
    parts = [_measured(body, inner) for body in bodies]
    size, cost = sum(part.size for part in parts), sum(part.cost for part in parts)
    makes_values = called in {"map", "bind"}
    return _Value(times * size if makes_values else operand.size, value.cost + times * (1 + cost))


def _literal_number(group: _Group) -> int:
    """Return the only part of a call as a number; above every limit if it is something else."""
    items = [item for part in group.parts for item in part]
    only = items[0] if len(items) == 1 else None
    if not items:
        return 0
    if isinstance(only, _Token) and only.kind == "number":
        return int(only.text, 16 if only.text.startswith("0x") else 10)
    return MAX_COST
