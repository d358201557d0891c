"""Reads Cluster Autoscaler's flags from its Deployment, for conversions.

Names and defaults of flags: `cluster-autoscaler/config/flags/flags.go` of Cluster Autoscaler 1.34.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import BadInputError
from karpenter_core.provider.kit.json_values import as_items, as_object, as_objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "AutoscalerFlag",
    "AutoscalerSettings",
    "autoscaler_container",
    "autoscaler_flags",
    "autoscaler_settings",
    "is_turned_off",
]

_PROGRAM: Final = "cluster-autoscaler"
_DURATION: Final = re.compile(r"([0-9]+[smh])+")
"""The durations that NodePools permit; Go, and so Cluster Autoscaler, permits others, too."""
_FALSE: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})
_DEFAULT_UNNEEDED_TIME: Final = "10m"
_STARTUP_TAINT_FLAGS: Final = frozenset({"ignore-taint", "startup-taint"})
_BOUNDS: Final = re.compile(r"(\d+):(\d+):(.+)")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerFlag:
    """A flag as it is given; `paths` are those of the arguments in the Deployment."""

    name: str
    """Without dashes."""
    value: str
    """`true` for a flag without value."""
    paths: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerSettings:
    """The flags that decide about NodePools; the defaults are those of Cluster Autoscaler."""

    unneeded_time: str = _DEFAULT_UNNEEDED_TIME
    scales_down: bool = True
    uses_priorities: bool = True
    """Whether the ConfigMap of the priority expander counts; also if no Deployment is known."""
    startup_taints: frozenset[str] = frozenset()
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, "tuple[int, int]"])
    """Minimum and maximum of the groups that `--nodes` names."""


def autoscaler_container(document: Mapping[str, object]) -> int | None:
    """Return the index of the container that runs Cluster Autoscaler; None for other documents."""
    if document.get("kind") != "Deployment":
        return None
    for number, container in enumerate(_containers(document)):
        image = str(container.get("image") or "").split("@")[0].rpartition("/")[2].split(":")[0]
        command = _texts(container.get("command"))
        if image.startswith(_PROGRAM) or (command and command[0].endswith(_PROGRAM)):
            return number
    return None


def autoscaler_flags(document: Mapping[str, object]) -> tuple[AutoscalerFlag, ...]:
    """Return the flags of a Deployment of Cluster Autoscaler, in order; () for other documents."""
    number = autoscaler_container(document)
    if number is None:
        return ()
    container = _containers(document)[number]
    place = f"spec.template.spec.containers.{number}"
    words = [
        (f"{place}.{part}.{index}", word)
        for part in ("command", "args")
        for index, word in enumerate(_texts(container.get(part)))
    ]
    return tuple(_flags(words))


def is_turned_off(flags: Iterable[AutoscalerFlag], name: str) -> bool:
    """Tell whether a flag that is true by default is false; its last value counts."""
    last = {flag.name: flag.value for flag in flags}
    return last.get(name) in _FALSE


def autoscaler_settings(documents: Sequence[Mapping[str, object]]) -> AutoscalerSettings:
    """Return what the Deployment of Cluster Autoscaler among documents decides about NodePools.

    Raises:
        BadInputError: a flag that counts here cannot be read.
    """
    if all(autoscaler_container(document) is None for document in documents):
        return AutoscalerSettings()
    flags = tuple(flag for document in documents for flag in autoscaler_flags(document))
    last = {flag.name: flag.value for flag in flags}
    return AutoscalerSettings(
        unneeded_time=_duration(last, "scale-down-unneeded-time", _DEFAULT_UNNEEDED_TIME),
        scales_down=not is_turned_off(flags, "scale-down-enabled"),
        uses_priorities="priority" in last.get("expander", "random").split(","),
        startup_taints=frozenset(flag.value for flag in flags if flag.name in _STARTUP_TAINT_FLAGS),
        bounds=dict(_bounds(flag.value) for flag in flags if flag.name == "nodes"),
    )


def _flags(words: Sequence[tuple[str, str]]) -> Iterator[AutoscalerFlag]:
    rest = list(words)
    while rest:
        path, word = rest.pop(0)
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        paths = [path]
        if not equals and rest and not rest[0][1].startswith("-"):
            path, value = rest.pop(0)
            paths.append(path)
        elif not equals:
            value = "true"
        yield AutoscalerFlag(name=name, value=value, paths=tuple(paths))


def _duration(flags: Mapping[str, str], name: str, default: str) -> str:
    text = flags.get(name, default)
    if not _DURATION.fullmatch(text):
        raise BadInputError(
            f'flag --{name} of Cluster Autoscaler: "{text}" is no duration in whole seconds, minutes '
            "and hours"
        )
    return text


def _bounds(text: str) -> tuple[str, tuple[int, int]]:
    match = _BOUNDS.fullmatch(text)
    if match is None:
        raise BadInputError(
            f'flag --nodes of Cluster Autoscaler: "{text}" has not the form MINIMUM:MAXIMUM:NAME'
        )
    return match[3], (int(match[1]), int(match[2]))


def _containers(document: Mapping[str, object]) -> list[Mapping[str, object]]:
    template = as_object(as_object(document.get("spec")).get("template"))
    return as_objects(as_object(template.get("spec")).get("containers"))


def _texts(value: object) -> list[str]:
    return [str(each) for each in as_items(value)]
