"""Indexes pods by node, waiting pods, their shapes, newest DaemonSet pods."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

from karpenter_core.state.tables import SnapshotTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.records import PodShape, PodView

__all__ = ["PodIndex", "PodIndexView", "changed_node"]

_DAWN: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIndexView:
    """The index at one instant."""

    by_node: Mapping[str, tuple[PodView, ...]]
    unbound: Mapping[str, PodView]
    pending: Mapping[str, PodView]
    nominated: Mapping[str, PodView]
    untried: Mapping[str, PodView]
    refused_shapes: Mapping[PodShape, int]
    newest_daemons: Mapping[str, PodView]


@final
class PodIndex:
    """Indexes pods one by one; the order of events does not matter."""

    __slots__ = (
        "_by_node", "_daemons", "_newest", "_nominated", "_on", "_pending", "_refused_shapes", "_stale",
        "_stale_daemons", "_unbound", "_untried",
    )  # fmt: skip

    def __init__(self) -> None:
        self._on: dict[str, dict[str, PodView]] = {}
        self._by_node: SnapshotTable[str, tuple[PodView, ...]] = SnapshotTable()
        self._stale: set[str] = set()
        self._unbound: SnapshotTable[str, PodView] = SnapshotTable()
        self._pending: SnapshotTable[str, PodView] = SnapshotTable()
        self._nominated: SnapshotTable[str, PodView] = SnapshotTable()
        self._untried: SnapshotTable[str, PodView] = SnapshotTable()
        self._refused_shapes: SnapshotTable[PodShape, int] = SnapshotTable()
        self._daemons: dict[str, dict[str, PodView]] = {}
        self._newest: SnapshotTable[str, PodView] = SnapshotTable()
        self._stale_daemons: set[str] = set()

    def put(self, new: PodView | None, old: PodView | None) -> tuple[str, ...]:
        """Replace a pod; return the nodes whose pods changed."""
        touched: list[str] = []
        if old is not None and _counts(old):
            touched.append(old.node_name)
            self._remove_from_node(old)
        if new is not None and _counts(new):
            touched.append(new.node_name)
            self._on.setdefault(new.node_name, {})[new.uid] = new
        self._put_waiting(new, old)
        self._put_daemon(new, old)
        for name in touched:
            _mark(self._stale, name, is_known=name in self._on or name in self._by_node)
        return tuple(dict.fromkeys(touched))

    def freeze(self) -> PodIndexView:
        """Return the index as it is now."""
        for name in self._stale:
            pods = self._on.get(name)
            if pods:
                self._by_node.put(name, tuple(sorted(pods.values(), key=_uid)))
            else:
                self._by_node.drop(name)
        self._stale.clear()
        for owner in self._stale_daemons:
            daemons = self._daemons.get(owner)
            if daemons:
                self._newest.put(owner, max(daemons.values(), key=_age_order))
            else:
                self._newest.drop(owner)
        self._stale_daemons.clear()
        return PodIndexView(
            by_node=self._by_node.freeze(),
            unbound=self._unbound.freeze(),
            pending=self._pending.freeze(),
            nominated=self._nominated.freeze(),
            untried=self._untried.freeze(),
            refused_shapes=self._refused_shapes.freeze(),
            newest_daemons=self._newest.freeze(),
        )

    def _put_waiting(self, new: PodView | None, old: PodView | None) -> None:
        if new is not None and not new.node_name and not new.is_terminal:
            self._unbound.put(new.uid, new)
        elif old is not None:
            self._unbound.drop(old.uid)
        kept_table = None if new is None else self._waiting_table(new)
        if new is not None and kept_table is not None:
            kept_table.put(new.uid, new)
        for table in (self._pending, self._nominated, self._untried):
            if table is not kept_table and old is not None:
                table.drop(old.uid)
        for pod, change in ((old, -1), (new, 1)):
            if pod is not None and pod.is_provisionable:
                self._count_refused(pod.shape, change)

    def _waiting_table(self, pod: PodView) -> SnapshotTable[str, PodView] | None:
        """Return the table of the pods that wait like this one; None if it does not wait."""
        if pod.is_provisionable:
            return self._pending
        if pod.is_nominated:
            return self._nominated
        return self._untried if pod.is_untried else None

    def _count_refused(self, shape: PodShape, change: int) -> None:
        count = (self._refused_shapes.get(shape) or 0) + change
        if count > 0:
            self._refused_shapes.put(shape, count)
        else:
            self._refused_shapes.drop(shape)

    def _remove_from_node(self, pod: PodView) -> None:
        pods = self._on.get(pod.node_name)
        if pods is not None:
            pods.pop(pod.uid, None)
            if not pods:
                del self._on[pod.node_name]

    def _put_daemon(self, new: PodView | None, old: PodView | None) -> None:
        if old is not None and old.is_daemon:
            daemons = self._daemons.get(old.owner_uid, {})
            daemons.pop(old.uid, None)
            if not daemons:
                self._daemons.pop(old.owner_uid, None)
        if new is not None and new.is_daemon and new.is_active:
            self._daemons.setdefault(new.owner_uid, {})[new.uid] = new
        for pod in (old, new):
            if pod is not None and pod.is_daemon:
                owner = pod.owner_uid
                is_known = owner in self._daemons or owner in self._newest
                _mark(self._stale_daemons, owner, is_known=is_known)


def changed_node(new: PodView | None, old: PodView | None) -> str:
    """Return the node that a pod came to, ended on, began to leave or left; empty otherwise."""
    pod = new if new is not None else old
    if pod is None or pod.is_daemon or not pod.node_name:
        return ""
    if new is None or old is None:
        return pod.node_name
    is_event = (
        old.node_name != new.node_name
        or (new.is_terminal and not old.is_terminal)
        or (new.is_terminating and not old.is_terminating)
    )
    return pod.node_name if is_event else ""


def _mark(stale: set[str], key: str, *, is_known: bool) -> None:
    """Mark a key, or forget one that has no pods and that no snapshot shows.

    A standby takes no snapshot for weeks, and would keep the name of each node that came and went.
    """
    if is_known:
        stale.add(key)
    else:
        stale.discard(key)


def _counts(pod: PodView) -> bool:
    return bool(pod.node_name) and not pod.is_terminal


def _uid(pod: PodView) -> str:
    return pod.uid


def _age_order(pod: PodView) -> tuple[datetime, str]:
    return pod.created or _DAWN, pod.uid
