"""Unknown status keys of a NodeClass are reported, not dropped."""

from __future__ import annotations

from typing import ClassVar

import pytest
import structlog
from pydantic import Field

from karpenter_core.api.base import CustomResource, Model, ObjectMeta
from karpenter_core.api.nodeclass import NodeClass, NodeClassStatus
from karpenter_core.provider.contract import NodeClassResolution
from karpenter_core.provider.host.executor import InlineExecutor
from karpenter_core.provider.markers import hookimpl
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.testing.provider_world import ProviderWorld
from tests.provider.fakes import FakeProvider


class Image(Model):
    image_id: str
    architecture: str = "amd64"


class ShopStatus(NodeClassStatus):
    image_ids: tuple[str, ...] = ()
    """`imageIDs` on the wire."""
    disk_gib: int = 0
    images: tuple[Image, ...] = ()
    tags: dict[str, str] = Field(default_factory=dict)


class ShopNodeClass(NodeClass):
    resource: ClassVar[CustomResource] = CustomResource(
        group="shop.example.com",
        version="v1",
        kind="ShopNodeClass",
        plural="shopnodeclasses",
        singular="shopnodeclass",
    )
    status: ShopStatus = Field(default_factory=ShopStatus)


class Resolving(FakeProvider):
    """Answers each resolution with one status."""

    def __init__(self, status):
        super().__init__("shop", ShopNodeClass)
        self.status = status

    @hookimpl
    def karpenter_resolve_node_class(self):
        return NodeClassResolution.ready(self.status)


def logged(status, folder, *, times=1):
    """Return what is logged of a status: plug-in, kind and problem."""
    return logged_of([status] * times, folder)


def logged_of(statuses, folder, *, limit=None):
    """Return what is logged of several answers in a row; at most `limit` places are remembered."""

    async def scenario():
        plugin = Resolving({})
        async with ProviderWorld(
            plugins={"shop": plugin},
            cache_folder=folder,
            clock=LoopClock(),
            executor=InlineExecutor(),
        ) as world:
            node_class = ShopNodeClass(metadata=ObjectMeta(name="default", uid="1"))
            for status in statuses:
                plugin.status = status
                await world.providers.resolve_node_class(node_class)
                remembered = world.providers._problems.messages("shop", "ShopNodeClass")
                assert len(remembered) <= (limit or len(statuses))

    with structlog.testing.capture_logs() as logs:
        run_virtual(scenario())
    errors = [line for line in logs if line["log_level"] == "error"]
    return [(line["plugin"], line["kind"], line["problem"]) for line in errors]


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ({"imageIds": ["a"]}, 'status has no field "imageIds"; did you mean "imageIDs"?'),
        ({"image_ids": ["a"]}, 'status has no field "image_ids"; did you mean "imageIDs"?'),
        ({"diskGiB": 20}, 'status has no field "diskGiB"; did you mean "diskGib"?'),
        (
            {"images": [{"imageID": "a"}, {"imageID": "b", "arch": "arm64"}]},
            'status.images[1] has no field "arch" (known: imageID)',
        ),
        (
            {"diskGib": "many"},
            "status.diskGib cannot be read: Input should be a valid integer",
        ),
        ({"oddity": None}, 'status has no field "oddity"'),
    ],
)
def test_an_unknown_status_key_is_logged_with_plug_in_kind_and_key(tmp_path, status, problem):
    ((plugin, kind, message),) = logged(status, tmp_path)
    assert (plugin, kind) == ("shop", "ShopNodeClass")
    assert message.startswith(problem)


def test_an_unknown_key_is_logged_once_per_class(tmp_path):
    assert len(logged({"imageIds": ["a"]}, tmp_path, times=5)) == 1


def test_a_value_that_is_another_one_each_time_is_logged_once(tmp_path):
    """A time or a request id in the place of a number would fill log and memory."""
    statuses = [{"diskGib": f"at {number}"} for number in range(5)]
    ((_, _, message),) = logged_of(statuses, tmp_path, limit=1)
    assert "'at 0'" in message


def test_two_fields_of_a_status_are_logged_each(tmp_path):
    statuses = [{"diskGib": "many"}, {"images": [{}]}, {"diskGib": "many"}]
    assert len(logged_of(statuses, tmp_path)) == 2


def test_so_many_fields_are_remembered_and_not_more(tmp_path, monkeypatch):
    """Names of fields may be made up as well; the oldest are forgotten."""
    monkeypatch.setattr("karpenter_core.provider.host.reported_problems.MAX_REPORTED_PROBLEMS", 3)
    statuses = [{f"field{number}": "a"} for number in (0, 1, 2, 3, 3, 0)]
    assert len(logged_of(statuses, tmp_path, limit=3)) == 5


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"imageIDs": ["a"], "diskGib": 20, "tags": {"team": "a"}},
        {"images": [{"imageID": "a"}], "diskGib": None},
    ],
)
def test_a_status_of_defined_keys_is_not_reported(tmp_path, status):
    assert logged(status, tmp_path) == []
