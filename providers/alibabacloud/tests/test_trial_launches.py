"""What is tried out for a NodeClass, over the whole provider (section 15)."""

from __future__ import annotations

import pytest

from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.testing.builders import node_pool
from karpenter_provider_alibabacloud.plugin import AlibabaCloudProvider
from providers.alibabacloud.tests.discovery.worlds import node_class_of
from providers.alibabacloud.tests.node_class.conftest import said, written
from providers.alibabacloud.tests.test_plugin import context, woken  # noqa: F401 - fixtures

REF = NodeClassRef(group="karpenter.k8s.alibabacloud", kind="ECSNodeClass", name="default")
TRIED = "RunInstances"


@pytest.fixture
def plugin(context):  # noqa: F811
    made = AlibabaCloudProvider()
    made.karpenter_start(context)
    yield made
    made.karpenter_stop()


def resolved(plugin, node_class):
    return written(node_class, plugin.karpenter_resolve_node_class(node_class))


def validation(plugin, node_class):
    return said(resolved(plugin, node_class), "ValidationSucceeded")


def test_a_launch_is_tried_out_once_and_launches_nothing(cloud, plugin):
    node_class = node_class_of(cloud, ramRoleName="KubernetesWorkerRole")

    first = resolved(plugin, node_class)
    again = resolved(plugin, first)

    assert said(first, "ValidationSucceeded") == said(again, "ValidationSucceeded")
    assert said(first, "ValidationSucceeded")[0] == "True"
    assert said(first, "Ready")[0] == "True"
    (call,) = cloud.calls.of(TRIED)
    assert call.parameters["DryRun"] == "True"
    assert call.parameters["RamRoleName"] == "KubernetesWorkerRole"
    assert not cloud.held().all


def test_a_role_that_may_not_be_used_is_said_of_the_node_class(cloud, plugin):
    cloud.deny(TRIED)

    status, reason, message = validation(plugin, node_class_of(cloud))

    assert (status, reason) == ("False", "RunInstancesAuthCheckFailed")
    assert "ecs:RunInstances" in message


def test_the_machine_is_one_that_a_node_pool_may_launch(cloud, plugin):
    node_class = node_class_of(cloud)
    arm = node_pool(node_class_ref=REF, requirements=[("kubernetes.io/arch", "In", "arm64")])
    plugin.running.known.note(node_class, arm)

    assert validation(plugin, node_class)[0] == "True"

    (call,) = cloud.calls.of(TRIED)
    facts = cloud.catalogue.facts(call.parameters["InstanceType"])
    image = next(it for it in cloud.images.all if it.id == call.parameters["ImageId"])
    assert (facts.architecture, image.architecture) == ("ARM", "arm64")


def test_the_disk_is_one_that_the_machine_boots_from(cloud, plugin):
    """The first of all categories is one that new types have no more."""
    status, *rest = validation(plugin, node_class_of(cloud))
    assert (status, rest) == ("True", rest)

    (call,) = cloud.calls.of(TRIED)
    zone = next(
        zone for zone, id_ in cloud.world.vswitches.items() if id_ == call.parameters["VSwitchId"]
    )
    offered = cloud.catalogue.disks(call.parameters["InstanceType"], zone)
    assert call.parameters["SystemDisk"]["Category"] in offered


def test_without_a_type_for_its_images_no_launch_would_succeed(cloud, plugin):
    for each in cloud.catalogue.types:
        cloud.catalogue.withdraw(instance_type=each.name) if each.architecture == "ARM" else None
    arm = [image.id for image in cloud.images.all if image.architecture == "arm64"]

    status, reason, _ = validation(
        plugin, node_class_of(cloud, imageSelectorTerms=[{"id": arm[0]}])
    )

    assert (status, reason) == ("False", "NoInstanceType")
