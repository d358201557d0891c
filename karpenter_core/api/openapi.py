"""Renders a model's structural OpenAPI schema, in the form a CRD needs.

Not pydantic's own JSON schema: Kubernetes allows no `$ref`, no `title`, no union with null, and
needs its extensions (`x-kubernetes-*`), int-or-string quantities and defaults of its own.

An empty default of a model (None, "", (), {}, an empty model) only says how an absent field is read;
it is no default in the API. Every other default of a model is filled in by the API server as well.
"""

from __future__ import annotations

import ast
import copy
import inspect
import sys
import types
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Final, Literal, Union, cast, get_args, get_origin

from pydantic_core import PydanticUndefined

from karpenter_core.api.base import KubernetesObject, Model
from karpenter_core.api.cel import CEL, RuleSlot
from karpenter_core.api.durations import Duration, NillableDuration
from karpenter_core.api.facets import UNSET, Facets, NestedFacets, RenderedAs
from karpenter_core.api.json_objects import JsonObject, JsonValue
from karpenter_core.api.quantities import Quantity
from karpenter_core.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pydantic.fields import FieldInfo

__all__ = ["JsonSchema", "object_schema"]

JsonSchema = JsonObject
"""A schema as plain JSON values."""

_RULES: Final = "x-kubernetes-validations"

# The API reference's pattern of a quantity in a CRD; it admits a few texts that no parser reads.
_QUANTITY: Final = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    "x-kubernetes-int-or-string": True,
}

_SCALARS: Final[Mapping[object, JsonSchema]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
    Duration: {"type": "string"},
    NillableDuration: {"type": "string"},
    Quantity: _QUANTITY,
    JsonValue: {"x-kubernetes-preserve-unknown-fields": True},
    object: {"x-kubernetes-preserve-unknown-fields": True},
}

_METADATA_FIELDS: Final = {
    "api_version": {
        "description": "Group and version of the kind, as in `group/version`.",
        "type": "string",
    },
    "kind": {"description": "The kind of the object.", "type": "string"},
    "metadata": {"type": "object"},
}


class _NoSchemaError(Exception):
    """The type of a field has no schema; becomes a PluginError that names the field."""


def object_schema(
    model: type[KubernetesObject],
    *,
    extra_rules: Mapping[RuleSlot, Sequence[CEL]],
) -> JsonSchema:
    """Return the schema of a whole object of one of our kinds.

    Raises:
        PluginError: the type of a field has no schema; names model and field.
    """
    return _SchemaRenderer(extra_rules).model(model)


class _SchemaRenderer:
    """One rendering; carries the providers' rules down to their slots."""

    __slots__ = ("_extra_rules",)

    def __init__(self, extra_rules: Mapping[RuleSlot, Sequence[CEL]]) -> None:
        self._extra_rules: Final = extra_rules

    def model(self, model: type[Model]) -> JsonSchema:
        properties: dict[str, JsonSchema] = {}
        required: list[str] = []
        documented = _field_descriptions(model)
        is_root = issubclass(model, KubernetesObject)
        for name, field in model.model_fields.items():
            wire_name = field.alias or name
            if is_root and name in _METADATA_FIELDS:
                properties[wire_name] = dict(_METADATA_FIELDS[name])
                continue
            try:
                schema = self.value(field.annotation, field.metadata)
            except _NoSchemaError as error:
                message = f"{model.__name__}.{name}: {error}"
                raise PluginError(message) from error
            if name in documented:
                schema["description"] = documented[name]
            default = _default(field)
            if default is not UNSET:
                schema["default"] = default
            properties[wire_name] = schema
            if _is_required(field):
                required.append(wire_name)
        schema = _described({"type": "object", "properties": properties}, model)
        if required:
            schema["required"] = sorted(required)
        self._apply(schema, cast("Iterable[object]", getattr(model, "cel", ())))
        return schema

    def value(self, annotation: object, metadata: Iterable[object] = ()) -> JsonSchema:
        """Return the schema of a value of this type under these annotations."""
        metadata = tuple(metadata)
        drawn = [item.annotation for item in metadata if isinstance(item, RenderedAs)]
        schema = self._type(drawn[0] if drawn else annotation)
        self._apply(schema, metadata)
        return schema

    def _type(self, annotation: object) -> JsonSchema:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self.value(arguments[0], arguments[1:])
        if origin in {Union, types.UnionType}:
            inner = [item for item in arguments if item is not type(None)]
            if len(inner) == 1:
                return self.value(inner[0])
        if origin is Literal:
            return {"type": "string", "enum": list(arguments)}
        if origin in {tuple, list} and arguments:
            return {"type": "array", "items": self.value(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.value(arguments[1])}
        if isinstance(annotation, type) and issubclass(annotation, Model):
            return self.model(annotation)
        if annotation in _SCALARS:
            return copy.deepcopy(_SCALARS[annotation])
        message = (
            f"a CustomResourceDefinition has no schema for the type {annotation!r}: use another model, a scalar "
            "(str, int, float, bool, datetime, Duration, Quantity), a Literal, or a tuple, list or dict of these"
        )
        raise _NoSchemaError(message)

    def _apply(self, schema: JsonSchema, metadata: Iterable[object]) -> None:
        """Add facets and rules, in the order they are written."""
        for item in metadata:
            match item:
                case Facets():
                    schema.update(item.to_schema())
                case CEL():
                    schema.setdefault(_RULES, []).append(item.to_schema())
                case RuleSlot():
                    self._apply(schema, self._extra_rules.get(item, ()))
                case NestedFacets():
                    self._apply_below(schema, item)
                case _:
                    pass  # another library's annotation, such as a serializer

    def _apply_below(self, schema: JsonSchema, below: NestedFacets) -> None:
        parent, place, name = schema, schema, ""
        for name in below.path:
            parent = place
            place = parent["items"] if name == "items" else parent["properties"][name]
        self._apply(place, below.metadata)
        if any(isinstance(item, Facets) and item.required for item in below.metadata):
            parent["required"] = sorted({*parent.get("required", ()), name})


def _is_required(field: FieldInfo) -> bool:
    for facets in _facets(field):
        if facets.required is not None:
            return facets.required
    return field.is_required()


def _default(field: FieldInfo) -> object:
    """Return the default that the API server fills in, or UNSET."""
    for facets in _facets(field):
        if facets.default is not UNSET:
            return facets.default
    default = field.default
    if default is PydanticUndefined or default is None or default in ("", (), {}):
        return UNSET
    return _to_json(default)


def _to_json(value: object) -> object:
    if isinstance(value, Model):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, tuple):
        return [_to_json(item) for item in cast("tuple[object, ...]", value)]
    if isinstance(value, Duration | NillableDuration):
        return value.text
    return value


def _facets(field: FieldInfo) -> tuple[Facets, ...]:
    return tuple(item for item in field.metadata if isinstance(item, Facets))


def _described(schema: JsonSchema, model: type[Model]) -> JsonSchema:
    if model.__doc__:
        schema["description"] = inspect.cleandoc(model.__doc__)
    return schema


@cache
def _field_descriptions(model: type[Model]) -> Mapping[str, str]:
    """Read the strings that stand below the fields in the class and its parents.

    Python does not keep them, so they come from the source; where that is not shipped, the schema
    merely has fewer descriptions.
    """
    descriptions: dict[str, str] = {}
    for parent in reversed(model.__mro__):
        if not issubclass(parent, Model):
            continue
        definition = _class_definitions(parent.__module__).get(parent.__qualname__)
        if definition is not None:
            descriptions |= _documented_assignments(definition)
    return descriptions


@cache
def _class_definitions(module: str) -> Mapping[str, ast.ClassDef]:
    """Read the classes of a module from its source, by their qualified names.

    `inspect.getsource` of a class parses its whole module each time.
    """
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return dict(_named_definitions(ast.parse(source), ""))


def _named_definitions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for node in ast.iter_child_nodes(parent):
        match node:
            case ast.ClassDef(name=name):
                yield prefix + name, node
                yield from _named_definitions(node, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from _named_definitions(node, f"{prefix}{name}.<locals>.")
            case ast.expr():
                pass  # no class in an expression
            case _:
                yield from _named_definitions(node, prefix)


def _documented_assignments(definition: ast.ClassDef) -> dict[str, str]:
    documented: dict[str, str] = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                documented[name] = inspect.cleandoc(text)
            case _:
                pass
    return documented
