"""Whatever happens to Azure and the cluster, images and versions of a NodeClass follow the rules."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.kubernetes_versions import parse_version
from providers.azure.tests.arm.values import SUBNET
from providers.azure.tests.fake_arm import forbidden, unanswered
from providers.azure.tests.node_class.worlds import (
    Process,
    definition_path,
    node_class_of,
    said,
    short_ids,
)

GEN2, GEN1 = "2204gen2containerd", "2204containerd"
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 9)),
        st.tuples(st.just("window"), st.booleans()),
        st.tuples(st.just("version"), st.integers(25, 33)),
        st.tuples(st.just("images"), st.sampled_from(["silent", "refused", "gone", "back"])),
        st.tuples(st.just("subnet"), st.sampled_from(["silent", "refused", "back"])),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("pass"), st.integers(1, 5)),
    ),
    max_size=14,
)


class World:
    """State of a process and its cloud."""

    def __init__(self):
        self.process = Process(version="v1.30.0")
        self.newest, self.is_open, self.fault = "1.0.0", True, "back"

    def play(self, kind, value):
        process = self.process
        match kind:
            case "publish":
                self.newest = f"{value}.0.0"
            case "window":
                self.is_open = value
                process.set_window(*((-1, 10_000) if value else (9_000, 10_000)))
            case "version":
                process.upgrade(f"v1.{value}.0")
            case "images":
                self.fault = value
            case "subnet":
                faults = {"silent": unanswered(), "refused": forbidden(), "back": {}}
                process.arm.put(SUBNET, faults[value])
            case "restart":
                process.restart()
            case _:
                process.later(minutes=value)
        process.publish(self.newest)
        faults = {"silent": unanswered(), "refused": forbidden(), "gone": []}
        if self.fault in faults:
            for name in (GEN2, GEN1, "2204gen2arm64containerd"):
                process.arm.put(definition_path(name), faults[self.fault])

    def resolve(self, node_class):
        """Return the NodeClass after a pass; the same one if Azure answers nothing."""
        try:
            return self.process.resolve(node_class)
        except CloudProviderError:
            return node_class


@settings(max_examples=60)
@given(EVENTS)
def test_images_move_in_the_window_or_with_kubernetes_and_versions_never_go_back(events):
    world, node_class = World(), node_class_of()
    node_class = world.resolve(node_class)
    for kind, value in events:
        world.play(kind, value)
        before, node_class = node_class, world.resolve(node_class)

        old, new = before.status, node_class.status
        assert parse_version(new.kubernetes_version) >= parse_version(old.kubernetes_version)
        assert not {it.split()[1] for it in short_ids(node_class)} - {
            f"{number}.0.0" for number in range(1, 10)
        }
        is_upgrade = new.kubernetes_version != old.kubernetes_version
        was_waiting = said(before, "ImagesReady")[1] == "KubernetesUpgrade"
        may_move = world.is_open or is_upgrade or was_waiting or not old.images
        if not may_move and new.images:
            assert short_ids(node_class) == short_ids(before), (kind, value)
        if is_upgrade and said(node_class, "ImagesReady")[0] == "True":
            assert {it.split()[1] for it in short_ids(node_class)} == {world.newest}
        if not new.images:
            assert said(node_class, "ImagesReady")[0] == "False"
        again = world.resolve(node_class)
        assert again.status == node_class.status, "a pass after a pass changes nothing"


@settings(max_examples=30)
@given(EVENTS)
def test_a_node_class_recovers_from_every_history(events):
    world, node_class = World(), node_class_of()
    for kind, value in events:
        world.play(kind, value)
        node_class = world.resolve(node_class)
    for kind, value in (("images", "back"), ("subnet", "back"), ("restart", None), ("pass", 2)):
        world.play(kind, value)

    node_class = world.resolve(node_class)

    assert said(node_class, "Ready")[0] == "True", node_class.status
    world.play("window", True)
    assert {it.split()[1] for it in short_ids(world.resolve(node_class))} == {world.newest}
