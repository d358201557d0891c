"""NodePools with schedules, for tests."""

from __future__ import annotations

import json

from karpenter_core.api.labels import SCHEDULES

__all__ = ["hours", "with_windows"]


def hours(name="hours", start="0 8 * * *", duration="1h", **changes):
    """A window of an hour every day, from eight in UTC; `changes` are its other fields."""
    return {"name": name, "schedule": start, "duration": duration, **changes}


def with_windows(pool, *windows):
    """Return a NodePool with windows as its schedules; a text is taken as the whole annotation."""
    text = windows[0] if windows and isinstance(windows[0], str) else json.dumps(windows)
    annotations = {**pool.metadata.annotations, SCHEDULES: text}
    metadata = pool.metadata.model_copy(update={"annotations": annotations})
    return pool.model_copy(update={"metadata": metadata})
