"""ACK's attach script over the simulated cloud (acceptance cases 77-79)."""

from __future__ import annotations

import base64
from types import SimpleNamespace

import pytest

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_provider_alibabacloud.bootstrap.scripts import (
    AttachScripts,
    ContainerRuntime,
    ScriptKey,
    pool_runtime,
    with_runtime,
)
from karpenter_provider_alibabacloud.bootstrap.user_data_builder import UserDataBuilder
from karpenter_simulated_alibabacloud.clusters import AckNodePool
from providers.alibabacloud.tests.discovery.worlds import node_class_of
from providers.alibabacloud.tests.manual_clock import NOON, HandClock

ASKED = "DescribeClusterAttachScripts"


@pytest.fixture
def clock(cloud):
    """The cloud's tokens end by the machine's clock, so ours follows it."""
    made = HandClock()
    made.passed = cloud.time() - NOON
    return made


@pytest.fixture
def scripts(cloud, clients, clock):
    return AttachScripts(clients, clock, cluster_id=cloud.world.cluster)


def pool(id_, runtime="containerd", version="1.6.39", *, default=False, healthy=0):
    return {
        "nodepool_info": {"nodepool_id": id_, "is_default": default},
        "kubernetes_config": {"runtime": runtime, "runtime_version": version},
        "status": {"healthy_nodes": healthy},
    }


def test_the_runtime_is_that_of_the_default_pool_or_the_healthiest():
    """Case 77, the choice."""
    small, large = pool("a", version="1", healthy=1), pool("b", version="2", healthy=9)
    default, silent = pool("c", version="3", default=True), {"nodepool_info": None}

    def version(*pools, node_pool_id=""):
        found = pool_runtime(pools, node_pool_id=node_pool_id)
        return None if found is None else found.version

    assert version(small, default, large) == "3"
    assert version(small, large, silent) == "2"
    assert version(small, default, large, node_pool_id="a") == "1"
    assert version(silent, pool("d", runtime="")) is None
    assert version() is None


def test_the_scripts_runtime_is_replaced():
    """Case 77, the text."""
    script = "bash -s -- --runtime docker --runtime-version 19.03.15 --ess true"

    assert with_runtime(script, ContainerRuntime("containerd", "1.6.39")) == (
        "bash -s -- --runtime containerd --runtime-version 1.6.39 --ess true"
    )
    assert with_runtime(script, None) == script
    assert with_runtime("bash -s", ContainerRuntime("containerd", "1")) == "bash -s"


def test_a_script_is_for_the_runtime_that_node_pools_have(cloud, scripts):
    """Case 77: ACK names that of a pool which is long gone."""
    cloud.clusters.get(cloud.world.cluster).script_runtime = ("docker", "19.03.15")

    script = scripts.script(ScriptKey())

    assert " --runtime containerd --runtime-version 1.6.39" in script
    assert not script.endswith(("\r", "\n"))


def test_a_script_stays_as_it_is_when_node_pools_cannot_be_read(cloud, scripts):
    """Case 77."""
    cloud.clusters.get(cloud.world.cluster).script_runtime = ("docker", "19.03.15")
    cloud.deny("DescribeClusterNodePools")

    assert " --runtime docker --runtime-version 19.03.15" in scripts.script(ScriptKey())


def test_a_script_is_fetched_once_in_six_hours_for_each_kind(cloud, scripts, clock):
    """Case 78."""
    plain, formatting = ScriptKey(), ScriptKey(format_disk=True)

    for _ in range(2):
        assert "--auto-fdisk" not in scripts.script(plain)
        assert "--auto-fdisk true" in scripts.script(formatting)
    assert cloud.calls.count(ASKED) == 2
    scripts.script(ScriptKey(architecture="arm64"))
    assert cloud.calls.count(ASKED) == 3

    clock.forward(hours=5, minutes=59)
    scripts.script(plain)
    assert cloud.calls.count(ASKED) == 3
    clock.forward(minutes=1)
    cloud.time.advance(6 * 3600)
    scripts.script(plain)
    assert cloud.calls.count(ASKED) == 4


@pytest.mark.parametrize(("architecture", "named"), [("amd64", None), ("arm64", "arm64")])
def test_ack_is_told_an_architecture_other_than_its_usual_one(cloud, scripts, architecture, named):
    scripts.script(ScriptKey(architecture=architecture))

    (call,) = cloud.calls.of(ASKED)
    assert call.parameters.get("arch") == named


def test_the_token_in_a_script_is_valid_for_the_lifetime_of_the_script(cloud, scripts, clock):
    scripts.script(ScriptKey())

    (call,) = cloud.calls.of(ASKED)
    assert int(call.parameters["expired"]) >= clock.now().timestamp() + 6 * 3600


def test_a_script_may_be_that_of_a_node_pool(cloud, scripts):
    pool = AckNodePool(id="np1", name="batch", runtime_version="2.1.1")
    cloud.clusters.get(cloud.world.cluster).node_pools.append(pool)

    script = scripts.script(ScriptKey(node_pool_id="np1"))

    assert "--nodepool-id np1" in script
    assert "--runtime-version 2.1.1" in script


def test_three_failed_registrations_fetch_the_scripts_again_once(cloud, scripts):
    scripts.script(ScriptKey())
    for _ in range(2):
        scripts.note_unregistered()
    scripts.note_registered()
    for _ in range(2):
        scripts.note_unregistered()
    scripts.script(ScriptKey())
    assert cloud.calls.count(ASKED) == 1

    for _ in range(5):
        scripts.note_unregistered()
        scripts.script(ScriptKey())
    assert cloud.calls.count(ASKED) == 2


def test_without_a_script_there_is_an_error_that_names_the_action(cloud, scripts):
    cloud.deny(ASKED)
    with pytest.raises(AuthError) as caught:
        scripts.script(ScriptKey())
    assert caught.value.action == f"cs:{ASKED}"

    cloud.faults.clear()
    cloud.cut_off(ASKED)
    with pytest.raises(CloudProviderError, match="no answer"):
        scripts.script(ScriptKey())


@pytest.mark.parametrize(("size", "is_script"), [(4096, True), (4097, False), (100_000, False)])
def test_an_answer_larger_than_a_script_is_an_error_and_is_asked_for_again(clock, size, is_script):
    """It was kept for six hours, in which the NodeClass was refused for the size of its user data."""
    bodies = ["x" * size, "curl https://example.com/attach | bash -s --"]
    answers = SimpleNamespace(
        call=lambda action, _: {"body": bodies.pop(0)} if action == ASKED else {}
    )
    scripts = AttachScripts(SimpleNamespace(ack=answers), clock, cluster_id="c123")
    if is_script:
        assert len(scripts.script(ScriptKey())) == size
        return
    with pytest.raises(CloudProviderError, match=f"cs:{ASKED} answers with {size:,} bytes"):
        scripts.script(ScriptKey())
    assert scripts.script(ScriptKey()).startswith("curl")


@pytest.mark.parametrize("answer", [{}, {"body": None}, {"body": "\r\n"}])
def test_an_answer_without_a_script_is_an_error_and_is_asked_for_again(clock, answer):
    """An instance without it would never join, and cost money."""
    asked = []

    def call(action, _parameters):
        asked.append(action)
        return answer if action == ASKED else {}

    ack = SimpleNamespace(ack=SimpleNamespace(call=call))
    scripts = AttachScripts(ack, clock, cluster_id="c123")
    for _ in range(2):
        with pytest.raises(CloudProviderError, match=f"cs:{ASKED} has no script for cluster c123"):
            scripts.script(ScriptKey())
    assert asked.count(ASKED) == 2


def test_a_node_class_has_its_script_and_its_kubelet_in_the_user_data(cloud, scripts):
    cluster = cloud.world.cluster
    bootstrapper = UserDataBuilder(scripts, cluster_id=cluster)
    node_class = node_class_of(
        cloud, formatDataDisk=True, kubeletConfiguration={"maxPods": 110}, userData="echo done"
    )

    text = base64.b64decode(bootstrapper.trial(node_class)).decode()

    assert "--auto-fdisk true" in text
    assert f"ack.aliyun.com={cluster}" in text
    assert " --node-config eyJrdWJlbGV0X2NvbmZpZyI6eyJtYXhQb2RzIjoxMTB9fQ== " in text
    assert text.index("--openapi-token") < text.index("echo done")


def test_a_cluster_outside_ack_makes_no_ack_call(cloud):
    """Case 79."""
    bootstrapper = UserDataBuilder(None, cluster_id="mine")

    made = bootstrapper.trial(node_class_of(cloud, userData="echo done"))

    assert base64.b64decode(made) == b"echo done"
    assert cloud.calls.all == ()
