"""Loads the models of a generated SDK one by one, when first used.

The package of models imports all of its modules, more than a thousand of them for ECS, and the
provider needs some dozens. That would be the larger part of the time and memory that the SDKs take,
and most of all where they are not compiled to byte code. Other importers of the package find the
same classes.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["load_models", "places_of"]

_IMPORTING: Final = ("from ", "import ")
_FUTURE: Final = "from __future__ import annotations"
_EXPORT: Final = re.compile(r"from \.(\w+) import (\w+)")

_lock: Final = Lock()


def load_models(package: str) -> ModuleType:
    """Return `<package>.models`, whose classes are loaded as they are asked for.

    It is imported as usual where its source is not there, or not as the generator writes it.

    Raises:
        ImportError: there is no such package.
    """
    name = f"{package}.models"
    with _lock:
        loaded = sys.modules.get(name)
        if loaded is not None:
            return loaded
        spec = find_spec(name)
        places = {} if spec is None else places_of(_source(spec))
        if spec is None or not places:
            return import_module(name)
        module = _lazy(spec, places)
        sys.modules[name] = module
        setattr(sys.modules[package], "models", module)  # noqa: B010 - as an import does
        return module


def places_of(source: str) -> dict[str, str]:
    """Return in which submodule each class is; nothing for a source that does more than import them."""
    places: dict[str, str] = {}
    for line in source.splitlines():
        if not line.startswith(_IMPORTING) or line == _FUTURE:
            continue
        match = _EXPORT.fullmatch(line)
        if match is None:
            return {}
        places[match[2]] = match[1]
    return places


def _source(spec: ModuleSpec) -> str:
    read: Callable[[str], str | None] | None = getattr(spec.loader, "get_source", None)
    return (read(spec.name) if read is not None else None) or ""


def _lazy(spec: ModuleSpec, places: Mapping[str, str]) -> ModuleType:
    """Return a module that looks its classes up (PEP 562)."""
    module = module_from_spec(spec)
    own = vars(module)

    def look_up(attribute: str) -> object:
        place = places.get(attribute)
        if place is None:
            raise AttributeError(f"module {spec.name!r} has no attribute {attribute!r}")
        model: object = getattr(import_module(f"{spec.name}.{place}"), attribute)
        setattr(module, attribute, model)
        return model

    def names() -> list[str]:
        return sorted({*own, *places})

    own["__getattr__"] = look_up
    own["__dir__"] = names
    return module
