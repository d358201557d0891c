"""Lowers the bounds of what a process keeps for the sake of the past.

Within its bound nobody could tell such a memory from a leak, and some need hours to be full.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["MOST_RESULTS", "cap_cached_calls", "small_bounds"]

MOST_RESULTS: Final = 100
"""Results that a function with a bounded cache may keep."""


@contextlib.contextmanager
def small_bounds() -> Iterator[None]:
    """Lower the bounds of tables, rings and memories; what is imported already counts as well."""
    # Imported here: `cap_cached_calls` has to come before everything that caches calls.
    from karpenter_core.api import schema
    from karpenter_core.controllers.interruption import controller as interruption
    from karpenter_core.controllers.nodeclaim import (
        garbage_collection,
        instance_launcher,
    )
    from karpenter_core.controllers.reconciling.decision_journal import (
        DecisionJournal,
    )
    from karpenter_core.kube import events
    from karpenter_core.scheduling.compiled import catalogue
    from karpenter_core.sim import topology
    from karpenter_provider_kwok import instance_store

    bounds = (
        (catalogue, "_MAX_OFFERING_MATRICES", 4),
        (catalogue, "_MAX_REQUIREMENTS", 20),
        (events, "_REMEMBERED", 20),
        (garbage_collection, "REMEMBERED_CLAIMS", 20),
        (instance_launcher, "REMEMBERED_TYPE_LISTS", 4),
        (instance_store, "_KEPT_CALLS", 1000),
        (instance_store, "_KEPT_GONE", 20),
        (interruption, "_REMEMBERED", 3),
        (schema, "_MAX_CACHED_RESULTS", 100),
        (topology, "_MOST_COUNTS", 4),
    )
    with contextlib.ExitStack() as stack:
        for module, name, bound in bounds:
            if getattr(module, name) <= bound:
                raise ValueError(f"{module.__name__}.{name} is {bound} or less already")
            stack.enter_context(patch.object(module, name, bound))
        stack.enter_context(patch.dict(DecisionJournal.__init__.__kwdefaults__, size=20))
        schema._RULE_RESULTS.clear()
        yield


def cap_cached_calls() -> None:
    """Let functions that are defined from now on keep few results."""
    cache = functools.lru_cache

    def capped(maxsize: Any = 128, typed: bool = False) -> Callable[..., Any]:
        if maxsize is None or callable(maxsize):
            return cache(maxsize, typed)
        return cache(min(maxsize, MOST_RESULTS), typed)

    functools.lru_cache = capped
