"""The generated provider has a simulated cloud for the demo."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from karpenter_core.provider.kit.demo_cloud import DemoFeature
from karpenter_core.testing import conformance

SCAFFOLD = Path(conformance.__file__).parents[2] / "cli" / "scaffold"


@pytest.fixture
def scaffold(monkeypatch):
    """Import the modules of the scaffold."""
    monkeypatch.syspath_prepend(str(SCAFFOLD))
    import karpenter_provider_tinycloud

    yield karpenter_provider_tinycloud
    for name in [name for name in sys.modules if "tinycloud" in name]:
        del sys.modules[name]


def create(demo, **fields):
    """Create a VM as the provider does."""
    wish = {"cluster": "karpenter-demo", "token": "t", "size": "large", "zone": "north"}
    wish |= {"image": "debian-v7", "spot": True, "user_data": json.dumps({"labels": {"a": "b"}})}
    headers = {"Authorization": f"Bearer {demo.environment['TINYCLOUD_TOKEN']}"}
    url = f"{demo.environment['TINYCLOUD_ENDPOINT']}/v1/vms"
    body = json.dumps({**wish, **fields}).encode()
    with urlopen(Request(url, data=body, headers=headers, method="POST")) as answer:
        return json.load(answer)["id"]


def test_the_demo_shows_instances_launches_and_interruptions(scaffold):
    from karpenter_provider_tinycloud.demo import simulated_cloud

    with simulated_cloud() as demo:
        before = datetime.now(UTC)
        vm = create(demo)
        provider_id = f"tinycloud://{vm}"

        assert set(demo.lacks) == {DemoFeature.NEWER_IMAGE}
        (instance,) = demo.instances().values()
        assert instance.offering.capacity_type == "spot"
        assert [call.bought for call in demo.launch_calls()] == [{instance.offering: 1}]
        assert demo.list_resources() == [vm]
        assert demo.nodes() == {}  # it boots for two seconds
        assert demo.interrupt(provider_id) > before
