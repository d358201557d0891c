"""Plants secrets wherever the controller is given some, lets calls fail, and looks for them.

Azure is the provider with the most of them: a bootstrap token among its settings, and boot data that
carries it to every instance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from providers.azure.tests.stages import CloudStage
from tests.support.cloud_scenarios import joining, pod_manifest
from tests.support.planted_secrets import (
    ENVIRONMENT,
    OF_ALL,
    SECRET,
    assert_looked_at,
    found_in,
    refuse_patches,
    texts_of,
    with_secret,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from karpenter_core.testing.provider_cluster import ProviderCluster

SIZE = "Standard_D2s_v5"
TOKEN = "p1ante.bootstraptoken01"
PLANTED = (TOKEN, TOKEN.partition(".")[2], *OF_ALL)


@pytest.fixture(scope="module")
def cloud_stage() -> Iterator[CloudStage]:
    made = CloudStage({SIZE})
    with made.open():
        yield made


def test_planted_secrets_are_neither_written_nor_served(
    cloud_stage: CloudStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    arguments = ["karpenter", "run", f"--kubelet-bootstrap-token={TOKEN}"]
    monkeypatch.setattr("sys.argv", arguments)
    boot_data: list[str] = []

    async def scenario(cluster: ProviderCluster) -> dict[str, str]:
        harness, cloud = cluster.harness, cloud_stage.cloud
        refuse_patches(cluster)
        pool = node_pool_manifest(
            AKSNodeClass, requirements={"node.kubernetes.io/instance-type": [SIZE]}
        )
        cluster.apply(SECRET, cloud_stage.node_class(), pool)
        await cluster.until_ready("True")
        refused = cloud.fail("virtualMachines:put", code="InternalError", status=500, times=None)
        async with joining(cloud, cluster):
            with refused:
                cluster.apply(with_secret(pod_manifest("web")))
                await cluster.advance_minutes(3)
            with cloud.fail("tokens:post", code="invalid_client", status=401, times=4):
                await harness.settle(lambda: bool(harness.pods("Running")), seconds=1800)
        boot_data.extend(str(call.parameters) for call in cloud.calls.of("virtualMachines:put"))
        with cloud.fail("tokens:post", code="invalid_client", status=401, times=None):
            return {"doctor with refused credentials": str(await cluster.user_messages())}

    def play(whole: Any, journal: Path) -> None:
        cloud_stage.play(
            tmp_path, whole, kubelet_bootstrap_token=TOKEN, decision_journal=str(journal)
        )

    texts = texts_of(tmp_path, play, scenario)

    assert ("boot data", TOKEN) in found_in({"boot data": "".join(boot_data)}, PLANTED)
    assert_looked_at(texts)
    assert found_in(texts, PLANTED) == set()
