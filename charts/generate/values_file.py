"""Reads `values.yaml` with its comments: names, defaults and descriptions of all values."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, cast

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from charts.generate.settings_table import Setting
    from karpenter_core.api.json_objects import JsonObject

__all__ = ["Value", "describe", "values_of", "values_table", "with_settings"]

_BEGIN: Final = "  # The settings; a value that is not set has the default of the controller.\n"
_END: Final = "  # End of the settings.\n"
_KEY: Final = re.compile(r"( *)([A-Za-z]\w*):(?: |$)")
_COMMENT: Final = re.compile(r" *# ?(-- )?(.*)")
_LONG: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value with a description."""

    path: tuple[str, ...]
    default: object
    help: str


def values_of(text: str) -> list[Value]:
    """Return each value that has a comment `# -- text`, in the order of the file.

    Raises:
        ValueError: a comment describes no value, or a value without parts has no comment.
    """
    defaults: JsonObject = yaml.safe_load(text)
    found: list[Value] = []
    path: list[tuple[int, str]] = []
    comment: list[str] | None = None
    described: set[tuple[str, ...]] = set()
    for line in text.splitlines():
        if (key := _KEY.match(line)) is not None:
            indent = len(key[1])
            path = [(depth, name) for depth, name in path if depth < indent] + [(indent, key[2])]
            names = tuple(name for _, name in path)
            if comment is not None:
                found.append(
                    Value(path=names, default=_at(defaults, names), help=" ".join(comment))
                )
                described.add(names)
            comment = None
        elif (match := _COMMENT.match(line)) is not None and match[1]:
            comment = [match[2]]
        elif match is not None and comment is not None:
            comment.append(match[2])
        else:
            comment = None
    if missing := [
        ".".join(leaf) for leaf in _leaves(defaults, ()) if not _covered(leaf, described)
    ]:
        raise ValueError(f"values.yaml: no description of {', '.join(missing)}")
    return found


def _covered(leaf: tuple[str, ...], described: set[tuple[str, ...]]) -> bool:
    return any(leaf[:length] in described for length in range(1, len(leaf) + 1))


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        for name, inner in cast("JsonObject", value).items():
            yield from _leaves(inner, (*path, name))
    else:
        yield path


def _at(values: JsonObject, path: Sequence[str]) -> object:
    *parents, name = path
    for parent in parents:
        values = values[parent]
    return values[name]


def with_settings(text: str, settings: Sequence[Setting]) -> str:
    """Return `values.yaml` with the settings of the code between its two marks.

    Raises:
        ValueError: a mark is missing.
    """
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError("values.yaml: no marks around the settings")
    lines: list[str] = []
    for readers, group in groupby(
        sorted(settings, key=lambda each: each.providers), key=lambda each: each.providers
    ):
        lines += ["  #", f"  # Read by {', '.join(readers) or 'the core'}:"]
        lines += [f"  # {each.name}: {each.default}".rstrip() for each in group]
    return before + begin + "\n".join(lines) + "\n" + end + after


def describe(
    schema: JsonObject, values: Sequence[Value], settings: Sequence[Setting]
) -> JsonObject:
    """Return the schema with the descriptions of `values.yaml` and the values under `settings`.

    Raises:
        ValueError: the schema has no such value.
    """
    for value in values:
        part = schema
        for name in value.path:
            if name not in part.get("properties", {}):
                raise ValueError(f"values.schema.json: no {'.'.join(value.path)}")
            part = part["properties"][name]
        part["description"] = value.help
    schema["properties"]["settings"]["properties"] = {
        setting.name: {**setting.schema, "description": f"{setting.help} ({setting.env})"}
        for setting in sorted(settings, key=lambda each: each.name)
    }
    return schema


def values_table(values: Sequence[Value], settings: Sequence[Setting]) -> str:
    """Return the table of all values for the documentation."""
    rows = [
        f"| `{'.'.join(value.path)}` | {_default(value.default)} | {_cell(value.help)} |"
        for value in values
        if value.path != ("settings",)
    ]
    for setting in settings:
        of = f" ({', '.join(setting.providers)})" if setting.providers else ""
        default = f"`{_cell(setting.default)}`" if setting.default else ""
        rows.append(f"| `settings.{setting.name}` | {default} | {_cell(setting.help)}{of} |")
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows]) + "\n"


def _default(value: object) -> str:
    if value in ("", None, {}, []):
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"`{_cell(text)}`" if len(text) <= _LONG else "see values.yaml"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
