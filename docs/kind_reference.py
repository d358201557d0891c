"""Writes docs/reference/kinds/ from the CustomResourceDefinitions in crds/: a page for each kind.

`docs/check.py` compares the pages with the definitions, and writes them with `--write`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.api.json_objects import JsonObject

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "docs" / "reference" / "kinds"
_LONGEST_PATTERN: Final = 72  # longer ones, such as those of label keys, explain nothing to people


def pages() -> dict[Path, str]:
    """Return the text of each page, by its path."""
    definitions = (
        yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "crds").glob("*.yaml"))
    )
    texts = {FOLDER / f"{crd['spec']['names']['kind']}.md": _page(crd) for crd in definitions}
    return {path.with_name(path.name.lower()): text for path, text in texts.items()}


def _page(crd: JsonObject) -> str:
    spec, versions = crd["spec"], crd["spec"]["versions"]
    stored = next(version for version in versions if version["storage"])
    kind, group = spec["names"]["kind"], spec["group"]
    lines = [
        f"# {kind}",
        "",
        f"`apiVersion: {group}/{stored['name']}`, `kind: {kind}`. `docs/kind_reference.py` writes this page from",
        "the CustomResourceDefinition, which the API server enforces.",
        "",
    ]
    others = [version["name"] for version in versions if version["served"] and version != stored]
    if others:
        lines += [f"Also served: {', '.join(f'`{name}`' for name in others)}.", ""]
    short_names = ", ".join(f"`{name}`" for name in spec["names"].get("shortNames", ()))
    lines += [
        f"`kubectl get {spec['names']['plural']}`"
        + (f"; short names: {short_names}" if short_names else "")
        + (
            ". Objects are in a namespace."
            if spec["scope"] == "Namespaced"
            else ". Objects are not in a namespace."
        ),
        "",
    ]
    schema = stored["schema"]["openAPIV3Schema"]
    for part in ("spec", "status"):
        if part in schema["properties"]:
            lines += _sections(part, schema["properties"][part])
    return "\n".join(lines).rstrip("\n") + "\n"


def _sections(path: str, schema: JsonObject) -> Iterator[str]:
    """Yield the lines of an object's section, then those of the objects in it."""
    yield from (f"## {path}", "")
    if schema.get("description"):
        yield from (_text(schema["description"]), "")
    required = set(schema.get("required", ()))
    yield from ("| field | type | default | meaning |", "|---|---|---|---|")
    for name, field in schema["properties"].items():
        is_needed = name in required and "default" not in field
        marked = f"`{name}`" + (" (required)" if is_needed else "")
        meaning = " ".join(_meaning(field))
        yield f"| {marked} | {_type(field)} | {_default(field)} | {meaning} |".replace(
            "|  |", "| |"
        )
    yield ""
    rules = list(_rules(schema))
    if rules:
        yield from ("Rules:", "")
        yield from (f"* {rule}" for rule in rules)
        yield ""
    for name, field in schema["properties"].items():
        inner, suffix = field, ""
        while inner.get("type") == "array":
            inner, suffix = inner["items"], suffix + "[]"
        if "properties" in inner:
            yield from _sections(f"{path}.{name}{suffix}", inner)


def _rules(schema: JsonObject) -> Iterator[str]:
    """Yield the rules of an object and of those of its fields that have no section."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield _text(rule.get("message") or f"`{rule['rule']}`")
    for name, field in schema["properties"].items():
        inner = field
        while inner.get("type") == "array":
            for rule in inner.get("x-kubernetes-validations", ()):
                yield f"`{name}`: {_text(rule.get('message') or rule['rule'])}"
            inner = inner["items"]
        if "properties" not in inner:
            for rule in inner.get("x-kubernetes-validations", ()):
                yield f"`{name}`: {_text(rule.get('message') or rule['rule'])}"


def _type(field: JsonObject) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    values = field.get("additionalProperties")
    if isinstance(values, dict):
        return f"map of string to {_type(values)}"
    if field.get("format") == "date-time":
        return "time"
    return str(field.get("type", "any"))


def _default(field: JsonObject) -> str:
    if "default" not in field:
        return ""
    value = field["default"]
    if isinstance(value, str):
        return f"`{value}`"
    return f"`{yaml.safe_dump(value, default_flow_style=True).strip().removesuffix('...').strip()}`"


def _meaning(field: JsonObject) -> Iterator[str]:
    """Yield what the schema says of a field's values."""
    if field.get("description"):
        yield _text(field["description"])
    inner = field
    while True:
        yield from _bounds(inner)
        if inner.get("type") != "array":
            return
        inner = inner["items"]


def _bounds(field: JsonObject) -> Iterator[str]:
    if "enum" in field:
        yield f"One of {', '.join(f'`{value}`' for value in field['enum'])}."
    words = {
        "minimum": "At least",
        "maximum": "At most",
        "minLength": "Shortest length:",
        "maxLength": "Greatest length:",
        "minItems": "Fewest items:",
        "maxItems": "Most items:",
        "maxProperties": "Most entries:",
    }
    for name, word in words.items():
        if name in field:
            yield f"{word} {field[name]}."
    if len(field.get("pattern", "")) in range(1, _LONGEST_PATTERN):
        yield f"Pattern: `{_cell(field['pattern'])}`."


def _text(description: str) -> str:
    """Return a description on one line, safe in a table and in Markdown."""
    return _cell(" ".join(description.split())).replace("<", "&lt;")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
