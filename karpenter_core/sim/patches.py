"""Applies JSON patches (RFC 6902) without changing their input."""

from __future__ import annotations

from typing import Any, cast

__all__ = ["PatchError", "json_patch"]


class PatchError(Exception):
    """The patch cannot be applied to this object."""


def json_patch(target: Any, operations: Any) -> Any:
    """Return the target after the operations, all of them or none.

    Raises:
        PatchError: an operation is malformed, points nowhere, or a `test` fails.
    """
    if not isinstance(operations, list):
        raise PatchError("a JSON patch must be a list of operations")
    for operation in cast("list[Any]", operations):
        if not _is_map(operation) or not isinstance(operation.get("path"), str):
            raise PatchError(f"invalid operation {operation!r}")
        target = _apply(target, cast("dict[str, Any]", operation))
    return target


def _apply(target: Any, operation: dict[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation.get("op"):
        case "add":
            return _edit(target, path, "add", operation.get("value"))
        case "replace":
            return _edit(target, path, "replace", operation.get("value"))
        case "remove":
            return _edit(target, path, "remove", None)
        case "test":
            if _value_at(target, path) != operation.get("value"):
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


def _value_at(target: Any, path: list[str]) -> Any:
    for step in path:
        target = target[_place(target, step, end=False)]
    return target


def _edit(target: Any, path: list[str], verb: str, value: Any) -> Any:
    if not path:
        if verb == "remove":
            raise PatchError("the whole object cannot be removed")
        return value
    step, rest = path[0], path[1:]
    if rest:
        place = _place(target, step, end=False)
        copy = target.copy()
        copy[place] = _edit(target[place], rest, verb, value)
        return copy
    if not _is_map(target) and not _is_list(target):
        raise PatchError(f'path segment "{step}" does not exist')
    copy = target.copy()
    if verb == "add" and _is_list(copy):
        copy.insert(_place(target, step, end=True), value)
    elif verb == "add" and _is_map(copy):
        copy[step] = value
    elif verb == "replace":
        copy[_place(target, step, end=False)] = value
    else:
        del copy[_place(target, step, end=False)]
    return copy


def _place(target: Any, step: str, *, end: bool) -> Any:
    """Return the key or index that a pointer's step means, which must exist."""
    if _is_list(target):
        size = len(target)
        if step == "-" and end:
            return size
        if step.isdigit() and int(step) < size + end:
            return int(step)
    elif _is_map(target) and step in target:
        return step
    raise PatchError(f'path segment "{step}" does not exist')


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)
