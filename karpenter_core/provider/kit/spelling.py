"""Finds misspelt hooks and arguments, and suggests correct names."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.provider import hookspecs
from karpenter_core.provider.markers import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["did_you_mean", "hook_problems"]

_ALIKE: Final = 0.75
"""Similarity (difflib's ratio) from which an unmarked name counts as a misspelt hook."""
_MARK: Final = f"{PROJECT}_impl"
"""The attribute that pluggy's marker leaves on a hook implementation."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a suggestion to end a message with; all known words if none is similar."""
    names = sorted(known)
    letters = _letters(word)
    same = [name for name in names if _letters(name) == letters]
    alike = same or get_close_matches(word, names, n=1)
    if alike:
        return f'; did you mean "{alike[0]}"?'
    return f" (known: {', '.join(names)})" if names else ""


def _letters(word: str) -> str:
    """Return a word without differences of spelling style."""
    return word.replace("_", "").lower()


def hook_problems(plugin: object) -> Iterator[str]:
    """Return the errors in the names of a plug-in's hooks and their arguments."""
    hook_names = _hook_names()
    for name in dir(plugin):
        implementation = getattr(plugin, name, None) if name.startswith(f"{PROJECT}_") else None
        if not callable(implementation):
            continue
        if name in hook_names:
            yield from _argument_problems(name, implementation)
        elif hasattr(implementation, _MARK):
            alike = get_close_matches(name, hook_names, n=1)
            meant = f'; did you mean "{alike[0]}"?' if alike else ""
            yield f'unknown hook "{name}"{meant}'
        elif alike := get_close_matches(name, hook_names, n=1, cutoff=_ALIKE):
            yield f'{name} is not a hook; did you mean "{alike[0]}", with @hookimpl above it?'


@cache
def _hook_names() -> frozenset[str]:
    return frozenset(name for name in dir(hookspecs) if name.startswith(f"{PROJECT}_"))


@cache
def _specified_arguments(name: str) -> tuple[str, ...]:
    return tuple(inspect.signature(getattr(hookspecs, name)).parameters)


def _argument_problems(name: str, implementation: object) -> Iterator[str]:
    if not hasattr(implementation, _MARK):
        yield f"{name} is not marked with @hookimpl"
        return
    specified = _specified_arguments(name)
    function = cast("Callable[..., object]", implementation)
    for argument, parameter in inspect.signature(function).parameters.items():
        is_asked = parameter.default is parameter.empty
        if is_asked and argument not in specified:
            yield f'{name} has no argument "{argument}"{did_you_mean(argument, specified)}'
