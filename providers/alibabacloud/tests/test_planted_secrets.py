"""Plants secrets wherever the controller is given some, lets calls fail, and looks for them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_simulated_alibabacloud.types import realistic_types
from providers.alibabacloud.tests.stages import CloudStage
from tests.support.cloud_scenarios import in_pool, joining, pod_manifest
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

SIZE = "ecs.g7.large"
USER_DATA = "planted-user-data"
BROKEN = "planted-broken-archive"
PASSWORD = "Planted-Root-0-Login"
PLANTED = (USER_DATA, BROKEN, PASSWORD, *OF_ALL)


@pytest.fixture
def cloud_stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudStage]:
    made = CloudStage([it for it in realistic_types() if it.name == SIZE])
    with made.open():
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        yield made


def test_planted_secrets_are_neither_written_nor_served(
    cloud_stage: CloudStage, tmp_path: Path
) -> None:
    launches: list[str] = []
    cloud = cloud_stage.cloud
    archive = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="b"\n\n{BROKEN}'

    async def scenario(cluster: ProviderCluster) -> dict[str, str]:
        harness = cluster.harness
        refuse_patches(cluster)
        script = f"#!/bin/bash\nlogin --password {USER_DATA}\n"
        cluster.apply(
            SECRET,
            cloud_stage.node_class(userData=script, password=PASSWORD),
            cloud_stage.node_class("broken", userData=archive),
            node_pool_manifest(ECSNodeClass, "general", weight=10),
            node_pool_manifest(ECSNodeClass, "broken", node_class="broken"),
        )
        await cluster.until_ready("True")
        async with joining(cloud_stage.cloud, cluster):
            with cloud.fail("RunInstances", code="InternalError", status=500, times=None):
                cluster.apply(
                    with_secret(pod_manifest("web")),
                    with_secret(pod_manifest("elsewhere", **in_pool("broken"))),
                )
                await cluster.advance_minutes(3)
            with cloud.fail("RunInstances", code="Forbidden.RAM", status=403, times=2):
                await harness.settle(lambda: bool(harness.pods("Running")), seconds=1800)
        launches.extend(str(call.parameters) for call in cloud.calls.of("RunInstances"))
        with cloud.fail(
            "DescribeVSwitches", code="InvalidAccessKeyId.NotFound", status=404, times=None
        ):
            refused = str(await cluster.user_messages())
        return {
            "doctor with refused credentials": refused,
            "conditions of the broken NodeClass": json.dumps(cluster.conditions("broken")),
        }

    def play(whole: Any, journal: Path) -> None:
        cloud_stage.play(tmp_path, whole, arguments=[f"--decision-journal={journal}"])

    texts = texts_of(tmp_path, play, scenario)

    sent = {secret for _, secret in found_in({"launches": "".join(launches)}, PLANTED)}
    assert {USER_DATA, PASSWORD} <= sent
    assert_looked_at(texts)
    assert "archive" in texts["conditions of the broken NodeClass"]
    assert found_in(texts, PLANTED) == set()
