"""Changes of claims, pools and catalogues wake the static pools that they affect."""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.reconciling.reconciler import DONE, ControllerRuntime
from karpenter_core.controllers.static.pool_changes import StaticPoolReconciler
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.scheduling.problem import Catalogue
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.state.events import (
    CataloguePublished,
    InformersSynced,
    ObjectObserved,
    ObjectRemoved,
)
from karpenter_core.testing import builders
from karpenter_core.testing.state_builders import (
    node_claim,
    ready_node_pool,
    standard_catalogue,
    synced_state,
)
from tests.controllers.clocks import StoryClock


def pool(name, **options):
    return ready_node_pool(builders.node_pool(name, **options))


CLAIM = node_claim("claim-a", pool="a")
CHANGED = CLAIM.model_copy(
    update={"metadata": CLAIM.metadata.model_copy(update={"resource_version": "9"})}
)
TYPES = Catalogue(version="next", instance_types=standard_catalogue().instance_types)


@pytest.mark.parametrize(
    ("change", "woken"),
    [
        (ObjectObserved(CHANGED), ["a"]),
        (ObjectRemoved(CLAIM), ["a", "b"]),
        (CataloguePublished("b", TYPES), ["b"]),
        (CataloguePublished("dynamic", TYPES), []),
        (ObjectRemoved(pool("b", replicas=1)), []),
    ],
    ids=["claim", "claim gone", "catalogue", "other catalogue", "pool gone"],
)
def test_a_change_wakes_the_pools_that_it_affects(change, woken):
    """Of a claim that is gone the pool is not known any more."""
    clock, seen = StoryClock(), []
    pools = [pool("a", replicas=1), pool("b", replicas=1), pool("dynamic")]
    cluster_state = ClusterState(synced_state(*pools, CLAIM, now=clock.now()), clock)

    async def reconcile(name):
        seen.append(name)
        return DONE

    runtime = ControllerRuntime(clock=clock, new_id=SequentialIds("id"), metrics=Metrics())
    reconciler = StaticPoolReconciler(
        "example", reconcile, cluster_state=cluster_state, runtime=runtime
    )

    async def story():
        running = asyncio.create_task(reconciler.run())
        cluster_state.fold(InformersSynced())
        await clock.sleep(5)
        assert sorted(seen) == ["a", "b"]
        seen.clear()
        cluster_state.fold(change)
        await clock.sleep(5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtual(story())
    assert sorted(seen) == woken
