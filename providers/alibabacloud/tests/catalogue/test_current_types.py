"""Tests the launchable types of a NodePool and the requests of their prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.api.nodepool import NodePool
from karpenter_provider_alibabacloud.catalogue.current_types import CurrentInstanceTypes, launchable
from karpenter_provider_alibabacloud.labels import GROUP
from providers.alibabacloud.tests.catalogue.instance_type_data import (
    MIB,
    TERWAY,
    SetClock,
    World,
    node_class,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMES = ("ecs.c7.large", "ecs.g7.large", "ecs.g8y.large", "ecs.gn7i-c8g1.2xlarge")
GPU = "karpenter.k8s.alibabacloud/instance-gpu-count"


def node_pool(*requirements: dict[str, Any], name: str = "web", **labels: str) -> NodePool:
    return NodePool.model_validate(
        {
            "metadata": {"name": name},
            "spec": {
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeClassRef": {"group": GROUP, "kind": "ECSNodeClass", "name": "default"},
                        "requirements": list(requirements),
                    },
                }
            },
        }
    )


def one(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (node_pool(), NAMES),
        (node_pool(team="blue"), NAMES),
        (node_pool(one("kubernetes.io/arch", "In", "arm64")), NAMES[2:3]),
        (node_pool(one(GPU, "Exists")), NAMES[3:]),
        (node_pool(one(GPU, "DoesNotExist")), NAMES[:3]),
        (node_pool(one("topology.kubernetes.io/zone", "In", "cn-hangzhou-z")), ()),
    ],
)
def test_a_node_pool_may_launch_types_that_its_requirements_allow(
    pool: NodePool, expected: tuple[str, ...]
):
    assert launchable(World(*NAMES).list().values(), pool) == expected


class ReservedCloud:
    def __init__(self) -> None:
        self.world = World(*NAMES)
        self.considered: list[tuple[str, ...]] = []
        self.woken = 0
        self.offered = CurrentInstanceTypes(
            self.world.catalogue,
            SetClock(),
            cluster=lambda: TERWAY,
            consider=self._consider,
            wake_prices=self._wake,
        )

    def _consider(self, names: Iterable[str]) -> bool:
        known = {name for each in self.considered for name in each}
        self.considered.append(tuple(names))
        return not known.issuperset(self.considered[-1])

    def _wake(self) -> None:
        self.woken += 1


def test_prices_are_read_for_types_that_a_node_pool_may_launch():
    shop = ReservedCloud()
    arm = node_pool(one("kubernetes.io/arch", "In", "arm64"))
    types = shop.offered.instance_types(node_class(), arm)

    assert tuple(it.name for it in types) == NAMES
    assert shop.considered == [("ecs.g8y.large",)]
    shop.offered.instance_types(node_class(), arm)
    assert shop.woken == 1

    shop.offered.instance_types(node_class(), node_pool())
    assert shop.considered[-1] == NAMES
    assert shop.woken == 2


def test_prices_are_read_for_a_type_that_the_region_sells_since():
    """The NodePool's template is the same."""
    shop = ReservedCloud()
    new = shop.world.types.pop("ecs.g7.large")
    shop.offered.instance_types(node_class(), node_pool())
    shop.world.types["ecs.g7.large"] = new
    shop.world.types_revision += 1

    shop.offered.instance_types(node_class(), node_pool())

    assert [len(names) for names in shop.considered] == [3, 4]
    assert shop.woken == 2


def test_node_pools_with_the_same_types_are_told_apart():
    shop = ReservedCloud()
    arm = one("kubernetes.io/arch", "In", "arm64")
    for pool in (node_pool(name="all"), node_pool(arm, name="arm"), node_pool(name="all")):
        shop.offered.instance_types(node_class(), pool)

    assert shop.considered == [NAMES, NAMES[2:3], NAMES]


def test_without_a_node_pool_no_price_is_read():
    shop = ReservedCloud()
    shop.offered.instance_types(node_class())

    assert shop.considered == []


def test_launches_request_offerings_of_the_catalogue():
    shop = ReservedCloud()
    of = node_class({"kubeletConfiguration": {"maxPods": 20}})

    assert shop.offered.max_pods(of)("ecs.g7.large") == 20
    assert shop.offered.image_for(of)("ecs.g8y.large") == "img-arm"
    assert shop.offered.learn_memory(
        of, instance_type="ecs.g7.large", image_id="img-amd", memory_bytes=7700 * MIB
    )
    found = {it.name: it for it in shop.offered.instance_types(of)}
    assert found["ecs.g7.large"].capacity["memory"] == 7700 * MIB
