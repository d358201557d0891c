"""Writes the CEL macro `cel.bind` out, which the CEL library does not have.

`cel.bind(name, value, body)` becomes `[value].map(name, body)[0]`, which means the same: `body`
with `name` for the value. The value is evaluated even if the body does not use it; of a value that
cannot be evaluated that is a failure more, never a wrong answer.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["expand_binds"]

_BIND: Final = re.compile(r"\bcel\s*\.\s*bind\s*\(")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_TOKEN: Final = re.compile(
    r"""[rRbB]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''
    |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*|[()\[\]{},]|.""",
    re.DOTALL | re.VERBOSE,
)
_MAX_BINDS: Final = 100


def expand_binds(expression: str) -> str:
    """Return an expression without `cel.bind`.

    Raises:
        ValueError: a use of the macro does not have its three arguments.
    """
    for _ in range(_MAX_BINDS):
        start = _first_bind(expression)
        if start is None:
            return expression
        opening, inside = start
        (name, value, body), end = _arguments(expression, inside)
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"cel.bind: {name!r} is not a variable name")
        expression = f"{expression[:opening]}[{value}].map({name}, {body})[0]{expression[end:]}"
    raise ValueError("cel.bind is used too often")


def _first_bind(expression: str) -> tuple[int, int] | None:
    """Return where the first use outside of strings begins, and where its arguments do."""
    position = 0
    while position < len(expression):
        bind = _BIND.match(expression, position)
        if bind is not None:
            return bind.start(), bind.end()
        word = _NAME.match(expression, position)
        if word is not None and expression[word.end() : word.end() + 1] not in {'"', "'"}:
            position = word.end()
            continue
        token = _TOKEN.match(expression, position)
        position = position + 1 if token is None else token.end()
    return None


def _arguments(expression: str, start: int) -> tuple[tuple[str, str, str], int]:
    """Return the three arguments of a call, and where it ends."""
    depth, begin, parts = 0, start, list[str]()
    for token in _TOKEN.finditer(expression, start):
        text = token[0]
        if text in {"(", "[", "{"}:
            depth += 1
        elif text == ")" and not depth:
            parts.append(expression[begin : token.start()].strip())
            if len(parts) != 3:  # noqa: PLR2004 - name, value, body
                break
            return (parts[0], parts[1], parts[2]), token.end()
        elif text in {")", "]", "}"}:
            depth -= 1
        elif text == "," and not depth:
            parts.append(expression[begin : token.start()].strip())
            begin = token.end()
    raise ValueError("cel.bind takes a name, a value and an expression")
