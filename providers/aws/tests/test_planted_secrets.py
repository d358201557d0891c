"""Plants secrets wherever the controller is given some, lets calls fail, and looks for them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_simulated_aws.testing import few_types, simulated_environment
from providers.aws.tests.test_answer_fuzz import PLAY, node_class
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
    from karpenter_simulated_aws.cloud import SimulatedAws

USER_DATA = "planted-user-data"
BROKEN = "planted-broken-archive"
PLANTED = (USER_DATA, BROKEN, *OF_ALL)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedAws]:
    with few_types() as aws, simulated_environment(aws):
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        yield aws


def class_with(cloud: SimulatedAws, name: str, user_data: str) -> dict[str, Any]:
    made = node_class(cloud)
    made["metadata"]["name"] = name
    made["spec"]["userData"] = user_data
    return made


def test_planted_secrets_are_neither_written_nor_served(
    cloud: SimulatedAws, tmp_path: Path
) -> None:
    boot_data: list[str] = []
    script = f"#!/bin/bash\nlogin --password {USER_DATA}\n"
    archive = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="b"\n\n{BROKEN}'

    async def scenario(cluster: ProviderCluster) -> dict[str, str]:
        harness = cluster.harness
        refuse_patches(cluster)
        pools = [
            node_pool_manifest(EC2NodeClass, "general", weight=10),
            node_pool_manifest(EC2NodeClass, "broken", node_class="broken"),
        ]
        classes = class_with(cloud, "default", script), class_with(cloud, "broken", archive)
        cluster.apply(SECRET, *classes, *pools)
        await cluster.until_ready("True")
        elsewhere = pod_manifest("web")
        elsewhere["metadata"]["name"] = "elsewhere"
        elsewhere["spec"]["nodeSelector"] = {"karpenter.sh/nodepool": "broken"}
        async with joining(cloud, cluster):
            with cloud.fail("CreateFleet", code="InternalError", status=500, times=None):
                cluster.apply(with_secret(pod_manifest("web")), with_secret(elsewhere))
                await cluster.advance_minutes(3)
            with cloud.fail("CreateFleet", code="UnauthorizedOperation", status=403, times=2):
                await harness.settle(lambda: bool(harness.pods("Running")), seconds=1800)
        boot_data.extend(str(call.parameters) for call in cloud.calls.of("CreateLaunchTemplate"))
        with cloud.fail("DescribeSubnets", code="AuthFailure", status=401, times=None):
            refused = str(await cluster.user_messages())
        return {
            "doctor with refused credentials": refused,
            "conditions of the broken NodeClass": json.dumps(cluster.conditions("broken")),
        }

    def play(whole: Any, journal: Path) -> None:
        arguments = (*PLAY.arguments, f"--decision-journal={journal}")
        replace(PLAY, arguments=arguments).run(tmp_path, whole)

    texts = texts_of(tmp_path, play, scenario)

    assert ("boot data", USER_DATA) in found_in({"boot data": "".join(boot_data)}, PLANTED)
    assert_looked_at(texts)
    assert "archive" in texts["conditions of the broken NodeClass"]
    assert found_in(texts, PLANTED) == set()
