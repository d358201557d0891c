"""Applies JSON patches (RFC 6902) without changing their input."""

from __future__ import annotations

from typing import TypeGuard, cast

from karpenter_core.api.json_objects import JsonObject

__all__ = ["PatchError", "json_patch"]


class PatchError(Exception):
    """The patch cannot be applied to this object."""


def json_patch(target: object, operations: object) -> object:
    """Return the target after the operations, all of them or none.

    Raises:
        PatchError: an operation is malformed, points nowhere, or a `test` fails.
    """
    if not isinstance(operations, list):
        raise PatchError("a JSON patch must be a list of operations")
    for operation in cast("list[object]", operations):
        if not _is_map(operation) or not isinstance(operation.get("path"), str):
            raise PatchError(f"invalid operation {operation!r}")
        target = _apply(target, operation)
    return target


def _apply(target: object, operation: JsonObject) -> object:
    path = _pointer(operation["path"])
    match operation.get("op"):
        case "add":
            return _edit(target, path, "add", operation.get("value"))
        case "replace":
            return _edit(target, path, "replace", operation.get("value"))
        case "remove":
            return _edit(target, path, "remove", None)
        case "test":
            if _member(target, path) != operation.get("value"):
                raise PatchError(f"testing value {operation['path']} failed")
            return target
        case "copy" | "move" as verb:
            source = _pointer(str(operation.get("from", "")))
            value = _value_at(target, source)
            base = _edit(target, source, "remove", None) if verb == "move" else target
            return _edit(base, path, "add", value)
        case other:
            raise PatchError(f"unexpected operation {other!r}")


def _pointer(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise PatchError(f'path "{path}" does not start with a slash')
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _value_at(target: object, path: list[str]) -> object:
    for step in path:
        target = _child(target, step)
    return target


def _member(target: object, path: list[str]) -> object:
    """Return the value at a pointer, None for a missing member of an object that exists."""
    parent = _value_at(target, path[:-1])
    if path and _is_map(parent):
        return parent.get(path[-1])
    return _value_at(target, path)


def _edit(target: object, path: list[str], verb: str, value: object) -> object:
    if not path:
        if verb == "remove":
            raise PatchError("the whole object cannot be removed")
        return value
    step, rest = path[0], path[1:]
    if rest:
        verb, value = "replace", _edit(_child(target, step), rest, verb, value)
    if _is_list(target):
        return _edit_list(target, step, verb, value)
    if not _is_map(target) or (verb != "add" and step not in target):
        raise PatchError(f'path segment "{step}" does not exist')
    changed = target.copy()
    if verb == "remove":
        del changed[step]
    else:
        changed[step] = value
    return changed


def _edit_list(target: list[object], step: str, verb: str, value: object) -> list[object]:
    changed = target.copy()
    index = _index(target, step, end=verb == "add")
    if verb == "add":
        changed.insert(index, value)
    elif verb == "replace":
        changed[index] = value
    else:
        del changed[index]
    return changed


def _child(target: object, step: str) -> object:
    """Return the member or item at one step of a pointer; it must exist."""
    if _is_list(target):
        return target[_index(target, step, end=False)]
    if _is_map(target) and step in target:
        return target[step]
    raise PatchError(f'path segment "{step}" does not exist')


def _index(items: list[object], step: str, *, end: bool) -> int:
    """Return the index at one step of a pointer; `end` allows the position after the last item."""
    size = len(items)
    if step == "-" and end:
        return size
    if step.isdigit() and int(step) < size + end:
        return int(step)
    raise PatchError(f'path segment "{step}" does not exist')


def _is_map(value: object) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)
