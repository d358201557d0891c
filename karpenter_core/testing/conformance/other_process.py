"""Hashes a NodeClass in another process, for the rule of stable hashes."""

from __future__ import annotations

import asyncio
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from karpenter_core.api.nodeclass import NodeClass

__all__ = ["HashRequest"]


@dataclass(frozen=True, kw_only=True)
class HashRequest:
    """The values that the other process needs to create the same provider."""

    name: str
    make: Callable[[], object]
    model: type[NodeClass]
    node_class: str
    """As JSON."""
    settings: dict[str, str | float | bool | timedelta]
    folder: str


async def _hash(question: HashRequest) -> str:
    from karpenter_core.testing.provider_world import ProviderWorld

    node_class = question.model.model_validate_json(question.node_class)
    async with ProviderWorld(
        plugins={question.name: question.make()},
        cache_folder=Path(question.folder),
        settings=question.settings,
    ) as world:
        found = await world.providers.hash_node_class(node_class)
    return f"{found.version}/{found.value}" if found else ""


if __name__ == "__main__":
    request = cast("HashRequest", pickle.load(sys.stdin.buffer))  # noqa: S301
    print(asyncio.run(_hash(request)))  # noqa: T201
