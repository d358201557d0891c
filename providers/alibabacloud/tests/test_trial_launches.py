"""Tests the dry runs of a NodeClass over the whole provider (section 15)."""

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


def test_the_trial_uses_an_instance_type_of_a_node_pool(cloud, plugin):
    node_class = node_class_of(cloud)
    arm = node_pool(node_class_ref=REF, requirements=[("kubernetes.io/arch", "In", "arm64")])
    plugin.running.node_classes.note(node_class, arm)

    assert validation(plugin, node_class)[0] == "True"

    (call,) = cloud.calls.of(TRIED)
    type_info = cloud.catalogue.type_info(call.parameters["InstanceType"])
    image = next(it for it in cloud.images.all if it.id == call.parameters["ImageId"])
    assert (type_info.architecture, image.architecture) == ("ARM", "arm64")


def test_the_trial_uses_a_disk_that_the_instance_type_supports(cloud, plugin):
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


@pytest.mark.parametrize(
    ("spec", "code", "field"),
    [
        ({"systemDisk": {"categories": ["cloud_essd"], "performanceLevel": "PL2"}},
         "OperationDenied.PerformanceLevelNotMatch", "spec.systemDisk.performanceLevel"),
        ({"systemDisk": {"categories": ["cloud_essd"], "volumeSize": "3Ti"}},
         "InvalidSystemDiskSize.ValueNotSupported", "spec.systemDisk"),
        ({"systemDisk": {"kmsKeyId": "key-1"}},
         "InvalidEncrypted.NotMatchKmsKeyId", "spec.systemDisk.encrypted, spec.dataDisks"),
        ({"systemDisk": {"categories": ["cloud_auto"], "provisionedIops": 50_000}},
         "InvalidProvisionedIops.LimitExceed", "spec.systemDisk.provisionedIops"),
        ({"dataDisks": [{"volumeSize": "100Gi", "snapshotId": "", "kmsKeyId": "key-1"}]},
         "InvalidEncrypted.NotMatchKmsKeyId", "spec.systemDisk.encrypted, spec.dataDisks"),
        ({"password": "alllowercase"}, "InvalidPassword.Malformed", "spec.password"),
        ({"password": "Passw0rd!", "passwordInherit": True},
         "InvalidPasswordParam.Mismatch", "spec.password"),
        ({"internetMaxBandwidthOut": 101},
         "InvalidInternetMaxBandwidthOut.Malformed", "spec.internetMaxBandwidthOut"),
        ({"internetChargeType": "PayByNobody"},
         "InvalidInternetChargeType.ValueNotSupported", "spec.internetChargeType"),
        ({"metadataOptions": {"httpPutResponseHopLimit": 65}},
         "InvalidHttpPutResponseHopLimit.NotSupported", "spec.metadataOptions"),
        ({"tags": {"aliyun.team": "web"}}, "InvalidTagKey.Malformed", "spec.tags"),
        ({"tags": {"team": "https://web"}}, "InvalidTagValue.Malformed", "spec.tags"),
    ],
)  # fmt: skip
def test_a_value_refused_by_ecs_is_reported_at_its_field(cloud, plugin, spec, code, field):
    """An older CRD or no rule admitted it; nothing is launched from the NodeClass."""
    node_class = node_class_of(cloud, **spec)
    type_of_all_disks = [("node.kubernetes.io/instance-type", "In", "ecs.g7.large")]
    plugin.running.node_classes.note(
        node_class, node_pool(node_class_ref=REF, requirements=type_of_all_disks)
    )

    status, reason, message = validation(plugin, node_class)

    assert status == "False"
    assert message.startswith(f"{field}: ")
    assert code in message
    assert reason.startswith(code.replace(".", ""))
    assert not cloud.held().all


def test_data_disks_without_categories_are_of_the_category_of_the_system_disk(cloud, plugin):
    """New types have none of the first category that there is."""
    node_class = node_class_of(cloud, dataDisks=[{"volumeSize": "40Gi"}])

    status, *said_of_it = validation(plugin, node_class)

    (call,) = cloud.calls.of(TRIED)
    assert (status, said_of_it) == ("True", said_of_it)
    (disk,) = call.parameters["DataDisk"]
    assert disk["Category"] == call.parameters["SystemDisk"]["Category"]
