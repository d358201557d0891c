"""Judges NodePools and NodeClasses in memory if no controller does so.

In a cluster with only Cluster Autoscaler, no controller resolves NodeClasses. An observer resolves them
by calls to the provider that change nothing in the cloud (`ProviderInfo.observes`), and completes the
snapshot of its own pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.conditions import READY, find_condition, is_true
from karpenter_core.controllers.catalogue.controller import catalogue_version
from karpenter_core.controllers.nodeclass.controller import RESOLVE_PERIOD, resolved_status
from karpenter_core.errors import FencedError, KarpenterError
from karpenter_core.lifecycle.nodepool.readiness import with_readiness
from karpenter_core.lifecycle.nodepool.validation import with_validation
from karpenter_core.scheduling.problem import Catalogue

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.lifecycle.nodepool.validation import LabelRules
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["UnjudgedNodePools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resolution:
    """A NodeClass as its provider resolved it, with its instance types."""

    version: tuple[str, int]
    until: float
    node_class: NodeClass
    catalogue: Catalogue | None


@final
class UnjudgedNodePools:
    """Completes snapshots by the conditions and catalogues that no other controller provides."""

    def __init__(
        self, *, providers: Providers, runtime: ControllerRuntime, label_rules: LabelRules
    ) -> None:
        self._providers: Final = providers
        self._runtime: Final = runtime
        self._label_rules: Final = label_rules
        self._resolutions: Final[dict[tuple[str, str, str], _Resolution]] = {}
        self._problems: Final[dict[str, str]] = {}
        self._log: FilteringBoundLogger = structlog.get_logger("observation")

    async def complete(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with every NodePool judged whose condition Ready no controller writes."""
        pools, catalogues = dict(snapshot.node_pools), dict(snapshot.catalogues)
        for name, pool in snapshot.node_pools.items():
            ref = pool.spec.template.spec.node_class_ref
            is_judged = find_condition(pool.status.conditions, READY) is not None
            if is_judged or not snapshot.manages(ref):
                continue
            node_class = snapshot.node_classes.get((ref.group, ref.kind, ref.name))
            resolution = None if node_class is None else await self._resolve(pool, node_class)
            if resolution is not None:
                node_class = resolution.node_class
                if resolution.catalogue is not None:
                    catalogues[name] = resolution.catalogue
            now = self._runtime.clock.now()
            judged = with_validation(pool, now=now, rules=self._label_rules)
            pools[name] = with_readiness(judged, node_class, now=now)
            self._report(pools[name])
        return replace(snapshot, node_pools=pools, catalogues=catalogues)

    async def _resolve(self, pool: NodePool, node_class: NodeClass) -> _Resolution | None:
        """Return the NodeClass resolved, not older than a period; None if that is not possible."""
        if find_condition(node_class.status.conditions, READY) is not None:
            return None  # a controller resolves it
        resource = type(node_class).resource
        key = resource.group, resource.kind, node_class.name
        version = node_class.uid, node_class.metadata.generation
        monotonic = self._runtime.clock.monotonic()
        known = self._resolutions.get(key)
        if known is not None and known.version == version and monotonic < known.until:
            return known
        try:
            resolved = await self._resolved(node_class)
            types = await self._providers.list_instance_types(pool, resolved)
        except FencedError as error:
            self._warn(node_class, f"{error}: the provider would have to create something for it")
            return None
        except KarpenterError as error:
            self._warn(node_class, str(error))
            return None
        self._problems.pop(f"nodeclass/{node_class.name}", None)
        resolution = _Resolution(
            version=version,
            until=monotonic + RESOLVE_PERIOD.total_seconds(),
            node_class=resolved,
            catalogue=Catalogue(version=catalogue_version(types), instance_types=types),
        )
        self._resolutions[key] = resolution
        return resolution

    async def _resolved(self, node_class: NodeClass) -> NodeClass:
        if not self._providers.resolves(node_class):
            return node_class
        resolution = await self._providers.resolve_node_class(node_class)
        status = resolved_status(node_class, resolution, now=self._runtime.clock.now())
        document = node_class.model_dump(mode="json", by_alias=True, exclude_none=True)
        before = node_class.status.model_dump(mode="json", by_alias=True, exclude_none=True)
        return type(node_class).model_validate({**document, "status": {**before, **status}})

    def _warn(self, node_class: NodeClass, problem: str) -> None:
        """Log why a NodeClass cannot be resolved, when that changes."""
        if self._is_new(f"nodeclass/{node_class.name}", problem):
            self._log.warning(
                "nodeclass cannot be observed", NodeClass=node_class.name, problem=problem
            )

    def _report(self, pool: NodePool) -> None:
        """Log why a NodePool is not ready, when that changes."""
        ready = find_condition(pool.status.conditions, READY)
        is_ready = is_true(pool.status.conditions, READY)
        problem = "" if is_ready or ready is None else f"{ready.reason}: {ready.message}"
        if self._is_new(f"nodepool/{pool.name}", problem):
            self._log.warning("nodepool is not ready", NodePool=pool.name, problem=problem)

    def _is_new(self, about: str, problem: str) -> bool:
        """Note the problem of an object, empty for none; tell whether it has to be logged."""
        changed = self._problems.get(about, "") != problem
        self._problems[about] = problem
        return changed and bool(problem)
