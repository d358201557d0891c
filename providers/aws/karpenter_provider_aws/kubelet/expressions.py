"""Evaluates CEL expressions in `spec.kubelet` for an instance type.

`maxPods` may be a text, and an amount of `kubeReserved` or `systemReserved` that is no quantity is
one too (gate `NodeClassCEL`). An expression is over the variables below and yields a whole number;
`sizing` interprets that number, and calls `evaluate` once for each instance type.

Mistakes come in two kinds, which the NodeClass's condition distinguishes: an expression that can
never be evaluated (`expression_error`), and one that fails for some instance type
(`EvaluationErrors`). CEL's types are checked where they meet, so the first kind is found by
evaluating for sample types; a mistake in a branch that no sample takes is found as the second kind,
for every type that exists.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cel import Program

__all__ = [
    "VARIABLES",
    "EvaluationErrors",
    "ExpressionError",
    "evaluate",
    "expression_error",
    "is_expression",
    "kubelet_expressions",
]

VARIABLES: Final = (
    "vcpus",
    "memory_mib",
    "default_enis",
    "ips_per_eni",
    "max_pods",
    "instance_type",
)
"""All whole numbers but the last, which is a text."""

_RESERVED_FIELDS: Final = ("kubeReserved", "systemReserved")
_LARGEST: Final = 2**63 - 1
_LONGEST: Final = 2048
_CACHED_PROGRAMS: Final = 256

_SAMPLES: Final = (
    {"vcpus": 2, "memory_mib": 8192, "default_enis": 3, "ips_per_eni": 10, "max_pods": 29,
     "instance_type": "m5.large"},
    {"vcpus": 128, "memory_mib": 4_194_304, "default_enis": 15, "ips_per_eni": 50, "max_pods": 737,
     "instance_type": "u-6tb1.metal"},
    {"vcpus": 1, "memory_mib": 512, "default_enis": 2, "ips_per_eni": 2, "max_pods": 4,
     "instance_type": "t4g.nano"},
)  # fmt: skip
"""A usual instance type, a large one and a small one."""

_FUNCTIONS: Final = frozenset(
    {"max", "min", "size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double",
     "string", "bool", "has", "all", "exists", "exists_one", "map", "filter"},
)  # fmt: skip
_NAME: Final = re.compile(r"[a-zA-Z_]\w*")
_PARSE_ERROR: Final = re.compile(
    r"<input>:\d+:(?P<column>\d+): (?:Syntax error: )?(?P<what>.*?)(?: expecting .*)?$"
)
_MACRO: Final = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*(\w+)\s*,")


class ExpressionError(ValueError):
    """An expression that cannot be evaluated, or yields no number that counts."""


class _NotFiniteError(ExpressionError):
    """The result is a number, but not a valid one; another instance type may have a valid one."""


def is_expression(text: str) -> bool:
    """Tell whether a reserved amount is an expression: whatever is no quantity."""
    try:
        parse_quantity(text)
    except ValueError:
        return True
    return False


def kubelet_expressions(kubelet: Mapping[str, object]) -> dict[str, str]:
    """Return the expressions of `spec.kubelet` by their place (`kubeReserved.cpu`), sorted.

    Values of other types than they should have are none: `checks` refuses them.
    """
    expressions: dict[str, str] = {}
    for name in _RESERVED_FIELDS:
        amounts = kubelet.get(name)
        if isinstance(amounts, dict):
            for resource, text in cast("dict[str, object]", amounts).items():
                if isinstance(text, str) and is_expression(text):
                    expressions[f"{name}.{resource}"] = text
    max_pods = kubelet.get("maxPods")
    if isinstance(max_pods, str):
        expressions["maxPods"] = max_pods
    return dict(sorted(expressions.items()))


def evaluate(expression: str, variables: Mapping[str, int | str]) -> int:
    """Evaluate an expression for one instance type; fractions are cut off.

    Integers are of 64 bits and never mixed with doubles, except by `max` and `min`.

    Raises:
        ExpressionError: the expression is none, fails (division by zero, overflow, unknown names), or
            yields something else than a finite number.
    """
    result = _execute(_compiled(expression), variables)
    if isinstance(result, bool) or not isinstance(result, int | float):
        raise ExpressionError(f"yields {_kind(result)}, not a number")
    if not math.isfinite(result):
        raise _NotFiniteError(f"yields {result}, which is no finite number")
    if not -_LARGEST - 1 <= result <= _LARGEST:
        raise _NotFiniteError(f"yields {result:g}, which is more than 64 bits hold")
    return int(result)


def expression_error(expression: str) -> str:
    """Say why an expression can never be evaluated; empty when it can."""
    try:
        program = _compiled(expression)
    except ExpressionError as error:
        return str(error)
    known_names = {*VARIABLES, *_MACRO.findall(expression)}
    unknown = [name for name in program.variables() if name not in known_names]
    unknown += [
        f"{name}()"
        for name in program.functions()
        if _NAME.fullmatch(name) and not name.startswith("_") and name not in _FUNCTIONS
    ]
    if unknown:
        return f"unknown: {', '.join(unknown)}"
    for sample in _SAMPLES:
        try:
            evaluate(expression, sample)
        except _NotFiniteError:
            continue
        except ExpressionError as error:
            # Arithmetic may fail for one type and not for another; types may not.
            if not isinstance(error.__cause__, ArithmeticError):
                return str(error)
    return ""


class EvaluationErrors:
    """An `evaluate` that notes what is wrong and answers zero, to try out every instance type."""

    __slots__ = ("_problems",)

    def __init__(self) -> None:
        self._problems: Final[dict[str, str]] = {}

    def __call__(self, expression: str, variables: Mapping[str, int | str]) -> int:
        """Evaluate; negative amounts are wrong too."""
        try:
            result = evaluate(expression, variables)
        except ExpressionError as error:
            problem = str(error)
        else:
            if result >= 0:
                return result
            problem = f"is {result}, less than zero"
        type_name = variables["instance_type"]
        self._problems.setdefault(expression, f'"{expression}" for {type_name}: {problem}')
        return 0

    @property
    def messages(self) -> tuple[str, ...]:
        """The problems: one for each expression, with the first instance type."""
        return tuple(self._problems.values())


def _execute(program: Program, variables: Mapping[str, int | str]) -> object:
    import cel

    context = cel.Context(dict(variables))
    context.add_function("max", _largest)
    context.add_function("min", _smallest)
    try:
        return program.execute(context)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ExpressionError(_error_text(str(error))) from error


@lru_cache(maxsize=_CACHED_PROGRAMS)
def _compiled(expression: str) -> Program:
    import cel

    if not expression.strip():
        raise ExpressionError("is empty")
    if len(expression) > _LONGEST:
        raise ExpressionError(f"is longer than {_LONGEST} characters")
    try:
        return cel.compile(expression)
    except (RuntimeError, ValueError) as error:
        raise ExpressionError(_error_text(str(error))) from error


def _largest(*values: object) -> float | None:
    numbers = _two_numbers(values)
    return None if numbers is None else max(numbers)


def _smallest(*values: object) -> float | None:
    numbers = _two_numbers(values)
    return None if numbers is None else min(numbers)


def _two_numbers(values: tuple[object, ...]) -> tuple[float, float] | None:
    """Return two numbers of one type; None for anything else, which then is no number of CEL.

    An exception would be logged by the library for every instance type.
    """
    match values:
        case (bool(), _) | (_, bool()):
            return None
        case (int() as left, int() as right):
            return left, right
        case (int() | float() as left, int() | float() as right):
            return float(left), float(right)
        case _:
            return None


def _kind(value: object) -> str:
    match value:
        case bool():
            return "a truth value"
        case str():
            return "a text"
        case None:
            return "nothing"
        case _:
            return "neither number nor text"


def _error_text(text: str) -> str:
    """Cut a message of the library to what is wrong; the rest is advice for programmers."""
    line = " ".join(text.split("\n", 1)[0].split())
    match = _PARSE_ERROR.search(line)
    if match is not None:
        return f"{match['what']} (at character {match['column']})"
    return line.split(". ", 1)[0].rstrip(".")
