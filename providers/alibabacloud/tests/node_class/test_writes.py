"""Tests the core's writes of an ECSNodeClass (cases 17, 19 to 22 and 25)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.nodeclass.controller import NodeClassController
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.testing.state_builders import node_claim
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.hashing import hash_node_class
from providers.alibabacloud.tests.discovery.worlds import node_class_of
from providers.alibabacloud.tests.node_class.conftest import said

GROUP, KIND = ECSNodeClass.resource.group, ECSNodeClass.resource.kind
PARTS = ("VSwitchesReady", "SecurityGroupsReady", "ImagesReady")


class ApiServer:
    """Stores NodeClasses, and notes each write of them."""

    def __init__(self) -> None:
        self.node_classes = {}
        self.node_claims = {}
        self.patches = []
        self.notices = []

    def put(self, node_class):
        key = (GROUP, KIND, node_class.name)
        self.node_classes[key] = node_class
        return key

    def snapshot(self):
        return SimpleNamespace(node_classes=dict(self.node_classes), node_claims=self.node_claims)

    def subscribe(self, *_args):
        return None

    async def read_all(self):
        return list(self.node_claims.values()), []

    async def patch(self, _resource, name, body, *, subresource="", resource_version=""):
        node_class = self.node_classes[GROUP, KIND, name]
        assert resource_version == node_class.metadata.resource_version
        self.patches.append((subresource or "metadata", body))
        plain = node_class.model_dump(mode="json", by_alias=True, exclude_none=True)
        for part, fields in body.items():
            merged = {**plain.get(part, {}), **fields}
            plain[part] = {key: value for key, value in merged.items() if value is not None}
        plain["metadata"]["resourceVersion"] = str(len(self.patches))
        self.put(ECSNodeClass.model_validate(plain))
        return self.node_classes[GROUP, KIND, name]

    @property
    def status_patches(self):
        return [body["status"] for part, body in self.patches if part == "status"]


class Hooks:
    """The provider's hooks of NodeClasses."""

    def __init__(self, process) -> None:
        self._process = process

    def finalizes(self, _node_class):
        return True

    def resolves(self, _node_class):
        return True

    async def hash_node_class(self, node_class):
        return hash_node_class(node_class)

    async def resolve_node_class(self, node_class):
        return self._process.resolver.resolve(node_class)

    async def finalize_node_class(self, node_class):
        self._process.finalizer.finalize(node_class)


@pytest.fixture
def server():
    return ApiServer()


@pytest.fixture
def controller(process, server):
    return NodeClassController(
        writer=SimpleNamespace(
            cluster_state=server, kube_writer=server, publish=server.notices.append
        ),
        providers=Hooks(process),
        runtime=ControllerRuntime(clock=process.clock, new_id=lambda: "id", metrics=Metrics()),
        claims=server,
    )


async def test_a_node_class_is_ready_after_one_resolution_and_one_status_write(
    controller, server, cloud
):
    """Case 20."""
    key = server.put(node_class_of(cloud))

    outcome = await controller.reconcile(key)

    (written,) = server.status_patches
    statuses = {each["type"]: each["status"] for each in written["conditions"]}
    assert {statuses[part] for part in (*PARTS, "Ready")} == {"True"}
    assert {"vSwitches", "securityGroups", "images"} <= written.keys()
    assert said(server.node_classes[key], "Ready")[0] == "True"
    assert outcome.requeue_after == 60


async def test_an_unchanged_cloud_is_not_written_again(controller, server, process, cloud):
    """Case 21: neither status nor metadata, although all was resolved again."""
    key = server.put(node_class_of(cloud))
    await controller.reconcile(key)
    patches, calls = len(server.patches), cloud.calls.count("DescribeVSwitches")

    for _ in range(3):
        process.later(minutes=2)
        await controller.reconcile(key)

    assert cloud.calls.count("DescribeVSwitches") == calls + 3
    assert len(server.patches) == patches


async def test_addresses_that_are_taken_are_written_only_where_the_order_changes(
    controller, server, process, cloud
):
    """The status has no numbers that change with every launch."""
    first, second, third = (cloud.world.vswitches[zone] for zone in cloud.world.zones)
    for vswitch, free in ((first, 100), (second, 90), (third, 80)):
        cloud.networks.leave_addresses(vswitch, free)
    key = server.put(node_class_of(cloud))
    await controller.reconcile(key)
    patches = len(server.patches)

    cloud.networks.leave_addresses(first, 95)
    process.later(minutes=2)
    await controller.reconcile(key)
    assert len(server.patches) == patches

    cloud.networks.leave_addresses(first, 10)
    process.later(minutes=2)
    await controller.reconcile(key)
    assert len(server.patches) == patches + 1
    (*_, written) = server.status_patches
    assert [each["id"] for each in written["vSwitches"]] == [second, third, first]


def add_vswitch(cloud):
    zone = cloud.world.zones[0]
    cloud.networks.add_vswitch(
        cloud.world.vpc_id, zone=zone, cidr="10.210.0.0/24", tags={"team": "new"}
    )


def add_group(cloud):
    cloud.networks.add_security_group(cloud.world.vpc_id, name="new", kind="enterprise")


def add_image(cloud):
    cloud.images.add("new")


def publish_image(cloud):
    cloud.images.publish("AlibabaCloudLinux3", "20260102")


@pytest.mark.parametrize(
    ("spec", "condition", "reason", "make"),
    [
        (
            {"vSwitchSelectorTerms": [{"tags": {"team": "new"}}]},
            "VSwitchesReady",
            "vSwitchesNotFound",
            add_vswitch,
        ),
        (
            {"securityGroupSelectorTerms": [{"name": "new"}]},
            "SecurityGroupsReady",
            "SecurityGroupsNotFound",
            add_group,
        ),
        (
            {"imageSelectorTerms": [{"name": "new"}]},
            "ImagesReady",
            "ImagesNotFound",
            add_image,
        ),
        (
            {"imageSelectorTerms": [{"alias": "AlibabaCloudLinux3@20260102"}]},
            "ImagesReady",
            "ImagesNotFound",
            publish_image,
        ),
    ],
    ids=["vswitch", "group", "image", "release"],
)
async def test_a_missing_resource_is_discovered_15_seconds_later(
    controller, server, process, cloud, spec, condition, reason, make
):
    """Case 19: that nothing was found is not kept like an answer."""
    key = server.put(node_class_of(cloud, **spec))
    outcome = await controller.reconcile(key)
    assert said(server.node_classes[key], condition)[:2] == ("False", reason)
    assert outcome.requeue_after == 15

    make(cloud)
    process.later(seconds=15)
    await controller.reconcile(key)

    assert said(server.node_classes[key], condition)[0] == "True"
    assert said(server.node_classes[key], "Ready")[0] == "True"


@pytest.mark.parametrize("alias", ["Debian", "A@b@c", "@latest"])
async def test_a_stored_unknown_alias_leaves_the_controller_running(
    controller, server, process, cloud, alias
):
    """Case 17: the others are resolved all the same, and it too once it is mended."""
    spec = {"imageSelectorTerms": [{"alias": alias}]}
    odd = server.put(node_class_of(cloud, **spec))
    metadata = {"name": "other", "uid": "uid-2"}
    good = node_class_of(cloud)
    good = good.model_copy(update={"metadata": good.metadata.model_copy(update=metadata)})
    other = server.put(good)

    outcome = await controller.reconcile(odd)
    await controller.reconcile(other)

    status, reason, message = said(server.node_classes[odd], "ImagesReady")
    assert (status, reason) == ("False", "ImagesNotFound")
    assert f'alias "{alias}"' in message
    assert said(server.node_classes[odd], "Ready")[0] == "False"
    assert outcome.requeue_after == 15
    assert said(server.node_classes[other], "Ready")[0] == "True"

    mended = server.node_classes[odd]
    server.put(
        mended.model_copy(
            update={
                "spec": node_class_of(cloud).spec,
                "metadata": mended.metadata.model_copy(update={"generation": 2}),
            }
        )
    )
    await controller.reconcile(odd)
    assert said(server.node_classes[odd], "Ready")[0] == "True"


async def test_a_part_without_a_first_answer_leaves_the_others_written(controller, server, cloud):
    """Case 22: before anything was ever found."""
    cloud.cut_off("DescribeSecurityGroups")
    key = server.put(node_class_of(cloud))

    await controller.reconcile(key)

    (written,) = server.status_patches
    assert len(written["vSwitches"]) == 3
    assert "securityGroups" not in written
    statuses = {each["type"]: each["status"] for each in written["conditions"]}
    assert [statuses[part] for part in ("VSwitchesReady", "ImagesReady")] == ["True", "True"]
    assert statuses["Ready"] != "True"


async def test_a_deleted_node_class_stays_until_its_last_claim_is_gone(
    controller, server, process, cloud
):
    """Case 25: an Event names five of seven claims."""
    key = server.put(node_class_of(cloud))
    await controller.reconcile(key)
    stored = server.node_classes[key]
    assert stored.metadata.finalizers == ("karpenter.k8s.alibabacloud/termination",)
    ref = NodeClassRef(group=GROUP, kind=KIND, name=stored.name)
    server.node_claims = {f"web-{n}": node_claim(f"web-{n}", node_class_ref=ref) for n in range(7)}
    gone = {"deletion_timestamp": process.clock.now()}
    server.put(stored.model_copy(update={"metadata": stored.metadata.model_copy(update=gone)}))
    patches = len(server.patches)

    await controller.reconcile(key)
    del server.node_claims["web-0"]
    await controller.reconcile(key)

    messages = [notice.message for notice in server.notices]
    assert [message.split(" for ")[1] for message in messages] == [
        "web-0, web-1, web-2, web-3, web-4 and 2 other(s)",
        "web-1, web-2, web-3, web-4, web-5 and 1 other(s)",
    ]
    assert len(server.patches) == patches

    server.node_claims = {}
    await controller.reconcile(key)
    assert server.patches[patches:] == [("metadata", {"metadata": {"finalizers": None}})]
