"""Reports a conversion: fields changed, added, left out, and open tasks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import yaml
from rich.console import Console
from rich.text import Text

from karpenter_core.cli.convert.draft import FieldFate
from karpenter_core.cli.tables import print_indented

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.cli.convert.draft import FieldChange
    from karpenter_core.cli.convert.session import ConvertedDocument

__all__ = ["json_document", "print_report"]

_SHOWN_VALUE: Final = 60
_SIGNS: Final = {
    FieldFate.MOVED: "=",
    FieldFate.CHANGED: "~",
    FieldFate.ADDED: "+",
    FieldFate.USED: "=",
    FieldFate.LEFT_OUT: "-",
    FieldFate.UNKNOWN: "!",
}
_QUIET: Final = frozenset({FieldFate.MOVED, FieldFate.USED})
"""Reported only if all fields are asked for."""


def print_report(
    results: Sequence[ConvertedDocument], errors: Sequence[str], *, all_fields: bool
) -> None:
    """Print the report on stderr, which the YAML on stdout does not mix with."""
    console = Console(stderr=True, highlight=False)
    for result in results:
        if result.error:
            console.print(Text(f"{result.title}: not converted: {result.error}"))
        elif result.is_converted:
            _print_document(console, result, all_fields=all_fields)
    for error in errors:
        console.print(Text(f"An API server would refuse {error}"))
    console.print(Text(_summary(results, errors)))


def _print_document(console: Console, result: ConvertedDocument, *, all_fields: bool) -> None:
    console.print(Text(f"{result.title}, {result.where}"))
    for change in result.changes:
        if change.is_notable and (all_fields or change.fate not in _QUIET):
            print_indented(console, _line(change))
    for warning in result.warnings:
        print_indented(console, f"to do: {warning}")


def _line(change: FieldChange) -> str:
    """Return a change in one line: sign, path, value, reason."""
    target = f"{change.manifest}: {change.target}" if change.manifest else change.target
    is_moved = change.source and target and change.source != target
    place = f"{change.source} -> {target}" if is_moved else change.source or target
    reason = f" ({change.reason})" if change.reason else ""
    value = "" if change.fate in _QUIET else f" = {_shown(change.value)}"
    return f"{_SIGNS[change.fate]} {place}{value}{reason}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_VALUE else f"{text[: _SHOWN_VALUE - 1]}…"


def _summary(results: Sequence[ConvertedDocument], errors: Sequence[str]) -> str:
    converted = sum(result.is_converted for result in results)
    manifests = sum(len(result.texts) for result in results if result.is_converted)
    changes = [change for result in results for change in result.changes if change.is_notable]
    left_out = sum(change.fate is FieldFate.LEFT_OUT for change in changes)
    unknown = sum(change.fate is FieldFate.UNKNOWN for change in changes)
    failed = sum(bool(result.error) for result in results)
    to_do = sum(len(result.warnings) for result in results)
    untouched = len(results) - converted - failed
    return (
        f"{_counted(converted, 'document')} converted to {_counted(manifests, 'manifest')}, "
        f"{untouched} unchanged, {failed} not converted; {_counted(left_out, 'field')} left out, "
        f"{unknown} unknown, {to_do} to do, {_counted(len(errors), 'error')} of admission"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def json_document(results: Sequence[ConvertedDocument], errors: Sequence[str]) -> dict[str, object]:
    """Return the manifests and the report as one document."""
    return {
        "documents": [
            {
                "where": result.where,
                "title": result.title,
                "converted": result.is_converted,
                "manifests": [yaml.safe_load(text) for text in result.texts],
                "changes": [
                    {
                        "fate": change.fate.value,
                        "source": change.source,
                        "target": change.target,
                        "manifest": change.manifest,
                        "value": change.value,
                        "reason": change.reason,
                    }
                    for change in result.changes
                ],
                "toDo": list(result.warnings),
                "error": result.error,
            }
            for result in results
        ],
        "admissionErrors": list(errors),
    }
