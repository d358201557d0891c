"""Leaves out most tests of records where the environment asks for a part: `make test` plays a tenth.

Tests that compare many results with recorded ones have the marker `recorded`. `.ci/run` and pytest alone play
all of them, and `KARPENTER_RECORDED_EXAMPLES=/10` one in ten of each file, drawn from the seed of the run: a
change of behaviour mostly changes results in many of them.
"""

from __future__ import annotations

import os
from itertools import groupby
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.drawn_faults import random_of_run

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["EXAMPLES", "MARKER"]

EXAMPLES: Final = "KARPENTER_RECORDED_EXAMPLES"
"""The environment variable that asks for a part, as in `/10`; all are played without it."""
MARKER: Final = "recorded"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of records that are not drawn, among those that other options have left."""
    part = os.environ.get(EXAMPLES, "")
    if not part:
        return
    others = set(_others(config, items, int(part.removeprefix("/"))))
    if others:
        config.hook.pytest_deselected(items=[item for item in items if item in others])
        items[:] = [item for item in items if item not in others]


def _others(config: pytest.Config, items: list[pytest.Item], part: int) -> Iterator[pytest.Item]:
    """Yield the tests that are not drawn: all but one in `part` of each file, and at least one."""
    recorded = [item for item in items if item.get_closest_marker(MARKER)]
    for path, tests in groupby(recorded, key=lambda item: item.path):
        each = list(tests)
        begin = random_of_run(config, f"records of {path.name}").randrange(min(part, len(each)))
        yield from (item for number, item in enumerate(each) if number % part != begin)
