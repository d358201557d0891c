"""Instances are updated when their claims or NodeClasses change."""

from __future__ import annotations

from collections import Counter

from karpenter_core.errors import CloudProviderError
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.provider.markers import hookimpl
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_kwok.plugin import KwokProvider
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool

KEPT = {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}


class Cloud:
    """Counts the calls for each claim, and fails as often as configured."""

    def __init__(self):
        self.calls = Counter()
        self.failures = 0

    def plugin(self):
        provider = KwokProvider()

        def sync(node_claim, node):
            assert node_claim.status.node_name == node.name
            self.calls[node_claim.name] += 1
            if self.failures:
                self.failures -= 1
                raise CloudProviderError("try later")

        provider.karpenter_sync_instance = hookimpl(sync)
        return provider


def run_controller(folder, scenario, cloud):
    async def run_scenario():
        async with ControllerHarness(lambda: {"kwok": cloud.plugin()}, folder=folder) as scene:
            scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEPT), deployment("web", 1)])
            scene.running = scene.start("--disable-leader-election")
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
            await scene.cluster.clock.sleep(30)
            await scenario(scene)

    run_virtual(run_scenario())


def test_an_instance_is_synced_once_and_again_when_something_changes(tmp_path):
    """A label of its claim, or what the NodeClass asks for; a new process cannot know."""
    cloud = Cloud()

    async def scenario(scene):
        (name,) = [claim["metadata"]["name"] for claim in scene.claims()]
        assert cloud.calls == {name: 1}

        label = {"metadata": {"labels": {"team": "a"}}}
        scene.cluster.server.registry.patch(NODE_CLAIMS, label, name, "")
        await scene.cluster.clock.sleep(5)
        assert cloud.calls == {name: 2}

        scene.cluster.apply([{**NODE_CLASS, "spec": {"nodeRegistrationDelay": "1s"}}])
        await scene.cluster.clock.sleep(5)
        assert cloud.calls == {name: 3}

        await scene.running.stop()
        scene.start("--disable-leader-election")
        await scene.cluster.clock.sleep(700)
        assert cloud.calls == {name: 4}

    run_controller(tmp_path, scenario, cloud)


def test_a_sync_that_fails_is_tried_again(tmp_path):
    """Until it succeeds, ever more slowly."""
    cloud = Cloud()
    cloud.failures = 3

    async def scenario(scene):
        await scene.cluster.clock.sleep(60)
        assert list(cloud.calls.values()) == [4]

    run_controller(tmp_path, scenario, cloud)
