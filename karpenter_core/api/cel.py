"""CEL rules, written beside the field they guard and evaluated in Python.

A rule is part of the model (`Annotated[str, CEL("self != ''", "group may not be empty")]`, or a
class' `cel` for the whole object). It is rendered into the CRD and evaluated alike by the real API
server, the embedded one and offline validation; there is no second copy in Python. Each rule is
compiled once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final

from karpenter_core.api.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.api.cel_library import Program
    from karpenter_core.api.json_objects import JsonObject

__all__ = ["CEL", "CELError", "RuleSlot", "compile_rule"]


@dataclass(frozen=True, slots=True)
class CEL:
    """One entry of `x-kubernetes-validations`."""

    rule: str
    message: str
    message_expression: str | None = None
    field_path: str | None = None
    reason: str | None = None

    def to_schema(self) -> dict[str, str]:
        """Return the entry as the CRD has it."""
        entry = {"message": self.message, "rule": self.rule}
        if self.message_expression is not None:
            entry["messageExpression"] = self.message_expression
        if self.field_path is not None:
            entry["fieldPath"] = self.field_path
        if self.reason is not None:
            entry["reason"] = self.reason
        return entry


class RuleSlot(StrEnum):
    """Places in the core's models where providers put rules for their own label domains."""

    REQUIREMENT_KEY = "requirement-key"
    TEMPLATE_LABELS = "template-labels"


class CELError(ValueError):
    """A rule that cannot be compiled, or fails on a value (rather than being false)."""


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A compiled rule, to be evaluated over values."""

    rule: str
    is_transition: bool
    """Whether the rule compares with the old value, and so does not apply to a new object."""
    _program: Program

    def evaluate(self, value: object, old: object = None) -> object:
        """Evaluate over `self` (and `oldSelf`, for a transition rule).

        Raises:
            CELError: evaluation failed; the message says why.
        """
        from karpenter_core.api.cel_library import Context, add_stdlib_to_context

        variables: JsonObject = {"self": value}
        if self.is_transition:
            variables["oldSelf"] = old
        context = Context(variables)
        if _uses_extension(self.rule):
            add_stdlib_to_context(context)
            for name, function in _EXTENSIONS.items():
                context.add_function(name, function)
        try:
            return self._program.execute(context)
        except KeyError as error:
            message = f"no such key: {error.args[0]}"
            raise CELError(message) from error
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise CELError(_error_text(error)) from error


@cache
def compile_rule(rule: str) -> CompiledRule:
    """Compile a rule, once per text.

    Raises:
        CELError: the rule is not CEL.
    """
    from karpenter_core.api.cel_library import compile_program

    try:
        program = compile_program(rule)
    except (RuntimeError, ValueError) as error:
        message = f"invalid rule {rule!r}: {error}"
        raise CELError(message) from error
    return CompiledRule(rule, re.search(r"\boldSelf\b", rule) is not None, program)


def _error_text(error: Exception) -> str:
    """Word a failure as the API server does, where the two libraries differ on a common one."""
    conversion = re.match(r"Function '(\w+)' error: string parse error", str(error))
    if conversion is not None:
        return f"type conversion error from 'string' to '{conversion[1]}'"
    return str(error)


@cache
def _uses_extension(rule: str) -> bool:
    """Tell whether a rule calls more than CEL's own functions; adding the others takes a while."""
    called = set(re.findall(r"\b([a-zA-Z]\w*)\s*\(", rule))
    return not called <= _CORE_FUNCTIONS


_CORE_FUNCTIONS: Final = frozenset(
    {"has", "all", "exists", "exists_one", "map", "filter", "size", "contains", "startsWith",
     "endsWith", "matches", "int", "uint", "double", "string", "duration", "timestamp", "in"},
)  # fmt: skip


def _find(text: str, pattern: str) -> str:
    """Kubernetes' extension: the first match, or nothing."""
    match = re.search(pattern, text)
    return match[0] if match else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Kubernetes' extension: all matches, or the first `limit`."""
    matches = [match[0] for match in re.finditer(pattern, text)]
    return matches if limit < 0 else matches[:limit]


def _quantity(text: str) -> str:
    """Kubernetes' extension: a quantity, kept as its text.

    Raises:
        ValueError: the text is not one.
    """
    parse_quantity(text)
    return text


def _is_integer(text: str) -> bool:
    """Kubernetes' extension: whether a quantity is whole; with a suffix below one it never is."""
    quantity = parse_quantity(text)
    return text[-1] not in "num" and quantity == quantity.to_integral_value()


_EXTENSIONS: Final[dict[str, Callable[..., object]]] = {
    "find": _find,
    "findAll": _find_all,
    "quantity": _quantity,
    "isInteger": _is_integer,
}
