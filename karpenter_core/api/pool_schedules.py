"""Reads schedules of NodePools: windows that change parts of the spec.

The annotation `karpenter.sh/schedules` of a NodePool holds them as a JSON list. Windows change the
limits, the replicas or the consolidation of the pool, or shut it down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.api.cron_schedule import CronSchedule
from karpenter_core.api.device_json import StrictStruct
from karpenter_core.api.durations import NillableDuration, parse_duration
from karpenter_core.api.labels import NODES, SCHEDULES
from karpenter_core.api.local_windows import LocalWindow, read_time_zone
from karpenter_core.api.names import label_value_error
from karpenter_core.api.nodepool import CONSOLIDATION_POLICIES
from karpenter_core.api.quantities import Quantity
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.nodepool import NodePool

__all__ = ["PoolWindow", "in_force", "read_schedules", "schedules_error"]

_MOST_WINDOWS: Final = 50
_SHORTEST: Final = timedelta(minutes=1)
_LONGEST: Final = timedelta(days=366)
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWindow:
    """A window, and what it changes of its NodePool; None changes nothing."""

    name: str
    opening: LocalWindow
    limits: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity])
    """Replace the limits of the same resources; the others stay."""
    replicas: int | None = None
    consolidation_policy: str | None = None
    consolidate_after: NillableDuration | None = None
    shutdown: bool = False


class _RawWindow(StrictStruct):
    """A window as it stands in the annotation."""

    name: str
    schedule: str
    duration: str
    time_zone: str = "UTC"
    limits: dict[str, str | int | float] | None = None
    replicas: int | None = None
    consolidation_policy: str | None = None
    consolidate_after: str | None = None
    shutdown: bool = False


def read_schedules(pool: NodePool) -> tuple[PoolWindow, ...]:
    """Return the windows of a NodePool, in the order of the annotation.

    Raises:
        BadInputError: names the annotation, the field and its value.
    """
    text = pool.metadata.annotations.get(SCHEDULES)
    if text is None:
        return ()
    found = _read(text, is_static=pool.spec.replicas is not None)
    if isinstance(found, str):
        raise BadInputError(f"annotation {SCHEDULES}: {found}")
    return found


def schedules_error(pool: NodePool) -> str:
    """Return the error of a NodePool's schedules; empty if they are valid."""
    try:
        read_schedules(pool)
    except BadInputError as error:
        return str(error)
    return ""


def in_force(pool: NodePool, windows: Iterable[PoolWindow]) -> NodePool:
    """Return a NodePool with what the open windows change.

    Of several windows that set a field the last one in the list wins, and a shutdown wins over all.
    """
    limits, replicas = dict(pool.spec.limits), pool.spec.replicas
    disruption: dict[str, object] = {}
    is_shut_down = False
    for window in windows:
        limits.update(window.limits)
        if window.replicas is not None:
            replicas = window.replicas
        if window.consolidation_policy is not None:
            disruption["consolidation_policy"] = window.consolidation_policy
        if window.consolidate_after is not None:
            disruption["consolidate_after"] = window.consolidate_after
        is_shut_down |= window.shutdown
    if is_shut_down and replicas is not None:
        replicas = 0
    elif is_shut_down:
        limits[NODES] = Quantity("0")
    spec = pool.spec.model_copy(
        update={
            "limits": limits,
            "replicas": replicas,
            "disruption": pool.spec.disruption.model_copy(update=disruption),
        }
    )
    return pool if spec == pool.spec else pool.model_copy(update={"spec": spec})


@lru_cache(maxsize=256)
def _read(text: str, *, is_static: bool) -> tuple[PoolWindow, ...] | str:
    """Return the windows, or the error."""
    try:
        rows = msgspec.json.decode(text, type=list[_RawWindow])
    except msgspec.DecodeError as error:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        return f"{str(error).replace(' - at `$', ' at `')}: {shown!r}"
    if len(rows) > _MOST_WINDOWS:
        return f"{len(rows)} windows are more than {_MOST_WINDOWS}"
    try:
        windows = tuple(
            _window(row, place=f"[{index}]", is_static=is_static) for index, row in enumerate(rows)
        )
    except BadInputError as error:
        return str(error)
    names = [window.name for window in windows]
    twice = sorted({name for name in names if names.count(name) > 1})
    return f'name "{twice[0]}" stands twice' if twice else windows


def _window(row: _RawWindow, *, place: str, is_static: bool) -> PoolWindow:
    if not row.name or label_value_error(row.name):
        raise BadInputError(f'{place}.name "{row.name}" is not a name that a label may have')
    try:
        opening = LocalWindow(
            schedule=CronSchedule.parse(row.schedule),
            duration=_duration(row.duration),
            zone=read_time_zone(row.time_zone),
        )
    except BadInputError as error:
        raise BadInputError(f"{place}: {error}") from error
    limits = {
        name: _limit(name, amount, place=place) for name, amount in (row.limits or {}).items()
    }
    problem = _mismatch(row, is_static=is_static)
    if problem:
        raise BadInputError(f"{place}: {problem}")
    policy = row.consolidation_policy
    if policy is not None and policy not in CONSOLIDATION_POLICIES:
        supported = ", ".join(CONSOLIDATION_POLICIES)
        raise BadInputError(f'{place}.consolidationPolicy "{policy}" is not one of {supported}')
    return PoolWindow(
        name=row.name,
        opening=opening,
        limits=limits,
        replicas=row.replicas,
        consolidation_policy=policy,
        consolidate_after=_consolidate_after(row.consolidate_after, place=place),
        shutdown=row.shutdown,
    )


def _mismatch(row: _RawWindow, *, is_static: bool) -> str:
    """Return why a window does not suit a static or dynamic NodePool; empty if it does."""
    consolidation = row.consolidation_policy is not None or row.consolidate_after is not None
    if row.replicas is not None and row.replicas < 0:
        return f"replicas {row.replicas} is less than 0"
    if row.replicas is not None and not is_static:
        return f"replicas {row.replicas} needs a static NodePool, and this one has no spec.replicas"
    if is_static and consolidation:
        return "consolidation has no effect on a static NodePool (spec.replicas)"
    if is_static and set(row.limits or {}) - {NODES}:
        return f"a static NodePool (spec.replicas) has no limit but {NODES}"
    if not (row.shutdown or row.limits or row.replicas is not None or consolidation):
        return (
            f'window "{row.name}" changes nothing: set limits, replicas, consolidationPolicy, '
            "consolidateAfter or shutdown"
        )
    return ""


def _duration(text: str) -> timedelta:
    try:
        duration = parse_duration(text)
    except ValueError:
        duration = timedelta()
    if not _SHORTEST <= duration <= _LONGEST or duration % _SHORTEST:
        raise BadInputError(f'duration "{text}" is not a number of minutes, from 1m to 8784h')
    return duration


def _limit(name: str, amount: str | float, *, place: str) -> Quantity:
    quantity = Quantity(amount)
    try:
        is_valid = quantity.value >= 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise BadInputError(f'{place}.limits.{name} "{amount}" is not a quantity from 0')
    return quantity


def _consolidate_after(text: str | None, *, place: str) -> NillableDuration | None:
    if text is None:
        return None
    duration = NillableDuration(text)
    try:
        value = duration.timedelta
    except ValueError:
        value = -_SHORTEST
    if value is not None and value < timedelta():
        raise BadInputError(f'{place}.consolidateAfter "{text}" is neither a duration nor Never')
    return duration
