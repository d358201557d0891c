"""Whatever Azure answers through its SDK, the controller goes on, and launches once what was asked for.

Answers of the simulated cloud are changed on their way. `KARPENTER_PROPERTY_EXAMPLES=500 pytest
providers/azure/tests/test_answer_fuzz.py` tries many.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from providers.azure.tests.registrar import joining
from providers.azure.tests.stages import CloudStage, pod_manifest
from tests.properties import with_examples
from tests.support.changed_answers import CHANGES, changing
from tests.support.invariants import Invariants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.testing.provider_cluster import ProviderCluster
    from tests.support.changed_answers import Change

SIZE = "Standard_D2s_v5"


@pytest.fixture(scope="module")
def cloud_stage() -> Iterator[CloudStage]:
    made = CloudStage({SIZE})
    with made.open():
        yield made


@with_examples(4)
@given(begin=st.booleans(), changes=CHANGES)
def test_a_pod_gets_one_instance_despite_failed_answers(
    cloud_stage: CloudStage, begin: bool, changes: list[Change | None]
) -> None:
    cloud_stage.cloud.reset()
    breaches: list[str] = []
    kept: list[int] = []

    async def scenario(cluster: ProviderCluster) -> None:
        harness, cloud = cluster.harness, cloud_stage.cloud
        watched = Invariants(harness)
        pool = node_pool_manifest(
            AKSNodeClass, requirements={"node.kubernetes.io/instance-type": [SIZE]}
        )
        async with joining(cloud, cluster):
            if not begin:
                cluster.apply(cloud_stage.node_class(), pool)
                await cluster.until_ready("True")
            with changing(cloud_stage.cloud._server, changes):
                cluster.apply(cloud_stage.node_class(), pool, pod_manifest("web"))
                await cluster.advance_minutes(10)
            await harness.settle(lambda: bool(harness.pods("Running")), seconds=7200)
            await cluster.advance_minutes(30)  # garbage is collected
        assert cluster.running.is_alive
        assert len(harness.pods("Running")) == 1
        kept.append(len(cloud.nodes()))
        breaches.extend(watched.breaches)

    with tempfile.TemporaryDirectory() as folder:
        cloud_stage.play(Path(folder), scenario)
    assert kept == [1]
    assert breaches == []
