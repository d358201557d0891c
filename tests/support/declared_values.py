"""Writes down the values that a module declares: its constants, and the defaults of what it defines.

They are read from the loaded module, so that another way to write the same value changes nothing.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Final

import msgspec
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from tests.support.canonical_text import canonical_text

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOT_VALUES: Final = (ModuleType, FunctionType, type, property, classmethod, staticmethod)
_NO_VALUES_OF: Final = frozenset({"collections.abc", "structlog._config", "types", "typing"})
"""Modules of types and loggers."""
_OF_INTERPRETER: Final = ("__", "_abc_")
"""First characters of names that a class gets from Python."""


def declared_values(name: str) -> str:
    """Return the values that a module declares, a line for each; empty if there are none."""
    module = importlib.import_module(name)
    source = Path(module.__file__ or "").read_text("utf-8")
    return "\n".join(_lines(module, ast.parse(source).body, module.__name__))


def _lines(scope: object, body: list[ast.stmt], module: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                value = vars(scope).get(name, inspect.Parameter.empty)
                if _is_value(value) and not name.startswith(_OF_INTERPRETER):
                    yield f"{name} = {canonical_text(value)}"
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                function = inspect.unwrap(_plain(vars(scope).get(name)))
                if isinstance(function, FunctionType):
                    yield from (f"{name}({each})" for each in _defaults(function))
            case ast.ClassDef(name=name, body=inner):
                defined = vars(scope).get(name)
                if isinstance(defined, type) and defined.__module__ == module:
                    lines = (*_field_defaults(defined), *_lines(defined, inner, module))
                    yield from (f"{name}.{line}" for line in lines)
            case ast.If(body=inner, orelse=other):
                yield from _lines(scope, [*inner, *other], module)
            case _:
                pass


def _plain(member: object) -> object:
    """Return the function behind a method of whatever kind."""
    match member:
        case property(fget=function) if function is not None:
            return function
        case classmethod() | staticmethod():
            return member.__func__
        case _:
            return member


def _is_value(value: object) -> bool:
    return not (
        value is inspect.Parameter.empty
        or isinstance(value, _NOT_VALUES)
        or inspect.isdatadescriptor(value)
        or type(value).__module__ in _NO_VALUES_OF
    )


def _defaults(function: FunctionType) -> Iterator[str]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty:
            yield f"{parameter.name}={canonical_text(parameter.default)}"


def _field_defaults(defined: type) -> Iterator[str]:
    if issubclass(defined, msgspec.Struct):
        # `msgspec.structs.fields` evaluates annotations, which name what only type checkers import.
        names, defaults = defined.__struct_encode_fields__, defined.__struct_defaults__
        values = (*[dataclasses.MISSING] * (len(names) - len(defaults)), *defaults)
        for name, default in zip(names, values, strict=True):
            yield _field(name, default, getattr(default, "factory", dataclasses.MISSING))
    elif issubclass(defined, BaseModel):
        for name, declared in defined.model_fields.items():
            factory = declared.default_factory or dataclasses.MISSING
            yield _field(declared.alias or name, declared.default, factory)
    elif issubclass(defined, tuple):
        for name, default in getattr(defined, "_field_defaults", {}).items():
            yield _field(name, default, dataclasses.MISSING)
    elif dataclasses.is_dataclass(defined):
        for each in dataclasses.fields(defined):
            yield _field(each.name, each.default, each.default_factory)


def _field(name: str, default: object, factory: object) -> str:
    if not _is_missing(factory):
        return f"{name}: {getattr(factory, '__name__', '')}()"
    if _is_missing(default):
        return f"{name}:"
    return f"{name}: {canonical_text(default)}"


def _is_missing(value: object) -> bool:
    return any(
        value is each for each in (dataclasses.MISSING, msgspec.NODEFAULT, PydanticUndefined)
    )
