"""Whatever AWS answers through boto3, the controller goes on, and launches once what was asked for.

Answers of the simulated cloud are changed on their way. `KARPENTER_PROPERTY_EXAMPLES=500 pytest
providers/aws/tests/test_answer_fuzz.py` tries many.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.kube.resources import NODES
from karpenter_core.testing.provider_cluster import ProviderClusterSpec, node_pool_manifest
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.described_instances import provider_id
from karpenter_provider_aws.plugin import AwsProvider
from karpenter_provider_aws.sdk import ClientLimits
from karpenter_simulated_aws.testing import (
    attempts,
    few_types,
    node_class_for,
    simulated_environment,
)
from tests.properties import with_examples
from tests.support.changed_answers import CHANGES, changing
from tests.support.invariants import Invariants

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from karpenter_core.testing.provider_cluster import ProviderCluster
    from karpenter_simulated_aws.cloud import SimulatedAws
    from tests.support.changed_answers import Change

LIMITS = ClientLimits(connect_seconds=1, read_seconds=5, retries=attempts(2))
PLAY = ProviderClusterSpec(
    plugins=lambda: {"aws": AwsProvider(limits=LIMITS)},
    model=EC2NodeClass,
    arguments=("--cluster-name=test", "--eks-control-plane"),
)
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "containers": [{"name": "web", "image": "web", "resources": {"requests": {"cpu": "1"}}}]
    },
}


@pytest.fixture(scope="module")
def cloud() -> Iterator[SimulatedAws]:
    with few_types() as aws, simulated_environment(aws):
        yield aws


def node_class(cloud: SimulatedAws) -> dict[str, Any]:
    spec = node_class_for(cloud).model_dump(mode="json", exclude_unset=True)["spec"]
    return {
        "apiVersion": EC2NodeClass.resource.api_version,
        "kind": EC2NodeClass.resource.kind,
        "metadata": {"name": "default"},
        "spec": spec,
    }


@asynccontextmanager
async def joining(cloud: SimulatedAws, stage: ProviderCluster) -> AsyncIterator[None]:
    """Register instances as kubelets do, and delete the Nodes of those that are gone."""
    cluster, names = stage.harness.cluster, dict[str, str]()

    async def follow() -> None:
        while True:
            living = {each.id: each for each in cloud.instances.living}
            for one in living.keys() - names.keys():
                node = cloud.node(provider_id(living[one].zone, one))
                cluster.apply([node])
                names[one] = str(node["metadata"]["name"])
            for one in names.keys() - living.keys():
                if cluster.find(NODES, name := names.pop(one)) is not None:
                    cluster.delete(NODES, name)
            await cluster.clock.sleep(1)

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@with_examples(4)
@given(begin=st.booleans(), changes=CHANGES)
def test_a_pod_gets_one_instance_despite_failed_answers(
    cloud: SimulatedAws, begin: bool, changes: list[Change | None]
) -> None:
    cloud.reset()
    breaches: list[str] = []
    kept: list[int] = []

    async def scenario(cluster: ProviderCluster) -> None:
        harness, watched = cluster.harness, Invariants(cluster.harness)
        pool = node_pool_manifest(
            EC2NodeClass, requirements={"karpenter.sh/capacity-type": ["spot"]}
        )
        async with joining(cloud, cluster):
            if not begin:
                cluster.apply(node_class(cloud), pool)
                await cluster.until_ready("True")
            with changing(cloud._server, changes):
                cluster.apply(node_class(cloud), pool, POD)
                await cluster.advance_minutes(10)
            await harness.settle(lambda: bool(harness.pods("Running")), seconds=7200)
            await cluster.advance_minutes(30)  # garbage is collected
        assert cluster.running.is_alive
        assert len(harness.pods("Running")) == 1
        kept.append(len(cloud.instances.living))
        breaches.extend(watched.breaches)

    with tempfile.TemporaryDirectory() as folder:
        PLAY.run(Path(folder), scenario)
    assert kept == [1]
    assert breaches == []
