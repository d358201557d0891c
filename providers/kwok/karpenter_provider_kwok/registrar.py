"""Keeps the cluster's Nodes in line with the simulated instances.

A launch returns at once; the Node follows when the instance would have booted. No call waits for
that work, and it must not be lost with the process: create the Nodes that are due, again and again
until it works, and delete the Nodes of instances that are gone. The work is read from the store
each time, so whichever process runs next continues it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import ApiError, ConflictError, FencedError
from karpenter_core.provider.kit.bounded_gather import gather_bounded
from karpenter_provider_kwok.labels import PROVIDER_ID_PREFIX

if TYPE_CHECKING:
    import sqlite3

    from karpenter_core.provider.contract import ProviderContext
    from karpenter_provider_kwok.active_faults import ActiveFaults
    from karpenter_provider_kwok.instance_store import InstanceStore

__all__ = ["TASK_NAME", "TASK_PERIOD", "NodeRegistrar"]

TASK_NAME: Final = "nodes"
TASK_PERIOD: Final = timedelta(seconds=10)
"""Longest delay of work of another process, which cannot wake this one."""

_PARALLEL: Final = 32
_FIRST_RETRY_SECONDS: Final = 0.5
_LAST_RETRY_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeTask:
    """A Node to create or to delete."""

    token: str
    provider_id: str
    name: str
    manifest: dict[str, object]
    attempts: int


@final
class NodeRegistrar:
    """One pass over what is due; wakes itself for what is due later."""

    def __init__(
        self, store: InstanceStore, disturbances: ActiveFaults, context: ProviderContext
    ) -> None:
        self._store: Final = store
        self._disturbances: Final = disturbances
        self._context: Final = context
        self._alarm: asyncio.Task[None] | None = None
        self._shown: Final[set[str]] = set()
        """Names of Nodes of instances that the watches of this process have shown."""

    async def run(self) -> None:
        """Create the Nodes that are due and delete those whose instance is gone."""
        self._disturbances.refresh()
        self._note_shown()
        now = self._now()
        tasks = [
            *(partial(self._create, work) for work in self._due(now)),
            *(partial(self._delete, work) for work in self._doomed(now)),
        ]
        await gather_bounded(lambda task: task(), tasks, at_once=_PARALLEL)
        self._set_alarm()

    def _note_shown(self) -> None:
        """Remember the Nodes that the watches show; forget those that no launch will ask for."""
        shown = {
            name
            for name, node in self._context.read_nodes().items()
            if node.provider_id.startswith(PROVIDER_ID_PREFIX)
        }
        self._shown.update(shown)
        if len(self._shown) == len(shown):
            return
        with self._store.reading() as db:
            rows = db.execute("SELECT provider_id FROM instances WHERE node_state != 'removed'")
            kept = {provider_id.removeprefix(PROVIDER_ID_PREFIX) for (provider_id,) in rows}
        self._shown.intersection_update(shown | kept)

    def stop(self) -> None:
        """Wake no more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def _create(self, work: _NodeTask) -> None:
        log = structlog.get_logger("kwok").bind(node=work.name)
        self._shown.discard(work.name)  # an earlier Node may have had the name
        try:
            if self._disturbances.is_node_failing(work.name):
                raise ApiError("injected: the Node cannot be created", status=500)  # noqa: TRY301
            await self._context.nodes.create(work.manifest)
        except FencedError:
            return  # the leader will do it
        except ConflictError as error:
            if not self._is_there(work):
                self._postpone(work)
                log.warning("another Node has the name of a new instance", error=str(error))
                return
        except ApiError as error:
            self._postpone(work)
            log.warning("node not created, trying again", error=str(error), attempt=work.attempts)
            return
        if self._is_there(work):
            self._shown.add(work.name)
        with self._store.transaction() as db:
            db.execute(
                "UPDATE instances SET node_state = 'made', node_made_at = ? "
                "WHERE token = ? AND node_state = 'due'",
                (self._now(), work.token),
            )

    async def _delete(self, work: _NodeTask) -> None:
        """Delete a Node, unless the watches show that it is gone or being deleted.

        A Node that they have never shown may exist: they may be silent, or have listed nothing yet.
        """
        node = self._context.read_nodes().get(work.name)
        is_unseen = node is None and work.name not in self._shown
        try:
            if is_unseen or (node is not None and not node.is_deleting and self._is_there(work)):
                await self._context.nodes.delete(work.name)
        except FencedError:
            return
        except ApiError as error:
            structlog.get_logger("kwok").warning(
                "node of a gone instance not deleted", node=work.name, error=str(error)
            )
            return
        with self._store.transaction() as db:
            db.execute("UPDATE instances SET node_state = 'removed' WHERE token = ?", (work.token,))
        self._shown.discard(work.name)

    def _is_there(self, work: _NodeTask) -> bool:
        """Whether the watches show this very instance's Node."""
        node = self._context.read_nodes().get(work.name)
        return node is not None and node.provider_id == work.provider_id

    def _postpone(self, work: _NodeTask) -> None:
        wait = min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2**work.attempts)
        with self._store.transaction() as db:
            db.execute(
                "UPDATE instances SET node_attempts = node_attempts + 1, node_due_at = ? "
                "WHERE token = ?",
                (self._now() + wait, work.token),
            )

    def _due(self, now: float) -> list[_NodeTask]:
        return self._select(
            "node_state = 'due' AND node_due_at <= ? AND terminating_at IS NULL "
            "AND (gone_at IS NULL OR gone_at > ?)",
            (now, now),
        )

    def _doomed(self, now: float) -> list[_NodeTask]:
        return self._select("node_state IN ('due', 'made') AND gone_at <= ?", (now,))

    def _select(self, condition: str, values: tuple[float, ...]) -> list[_NodeTask]:
        with self._store.reading() as db:
            rows: list[sqlite3.Row] = db.execute(
                f"SELECT * FROM instances WHERE {condition} ORDER BY launched_at, token",  # noqa: S608
                values,
            ).fetchall()
        return [_work(row) for row in rows]

    def _set_alarm(self) -> None:
        """Wake up when the next Node is due, or the next instance goes."""
        with self._store.reading() as db:
            row = db.execute(
                "SELECT min(at) FROM (SELECT node_due_at AS at FROM instances WHERE "
                "node_state = 'due' AND terminating_at IS NULL AND gone_at IS NULL "
                "UNION ALL SELECT gone_at FROM instances WHERE node_state IN ('due', 'made'))"
            ).fetchone()
        self.stop()
        if row[0] is None:
            return
        wait = row[0] - self._now()
        if wait <= 0:  # it could not be done just now
            wait = _FIRST_RETRY_SECONDS
        if wait < TASK_PERIOD.total_seconds():
            self._alarm = asyncio.create_task(self._wake_after(wait))

    async def _wake_after(self, seconds: float) -> None:
        await self._context.clock.sleep(seconds)
        self._alarm = None
        self._context.wake(TASK_NAME)

    def _now(self) -> float:
        return self._context.clock.now().timestamp()


def _work(row: sqlite3.Row) -> _NodeTask:
    manifest: dict[str, dict[str, object]] = json.loads(row["node"])
    return _NodeTask(
        token=row["token"],
        provider_id=row["provider_id"],
        name=str(manifest["metadata"]["name"]),
        manifest=dict(manifest),
        attempts=row["node_attempts"],
    )
