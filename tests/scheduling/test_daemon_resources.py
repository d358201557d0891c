"""DaemonSets that request what an instance type lacks do not keep other pods off it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.scheduling.problem import PoolConstraint
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    daemon,
    instance_type,
    node_pool,
    offering,
    pod,
    pod_shape,
    problem,
)
from tests.verifier import violations

GPU = "nvidia.com/gpu"


def sold(name, price, *, gpus=None):
    made = instance_type(
        name, cpu="4", memory="16Gi", overhead={}, offerings=[offering(price=price)]
    )
    return made if gpus is None else replace(made, capacity={**made.capacity, GPU: gpus})


PLAIN, ZERO, ONE, TWO = (
    sold("plain", 0.2),
    sold("zero", 0.3, gpus=0),
    sold("one", 3.0, gpus=1),
    sold("two", 6.0, gpus=2),
)


def asking(daemons, *pods, market=(PLAIN, ZERO, ONE, TWO)):
    return problem(
        pods, pools=[node_pool()], catalogues={"default": catalogue(*market)}, daemons=daemons
    )


def agent(cpu="1", **amounts):
    shape = pod_shape(cpu=cpu, owner_kind="DaemonSet", requests=amounts)
    return daemon("agent", shape=shape)


def claims(asked):
    plan = solve(asked)
    assert plan.unschedulable == {}
    assert violations(asked, plan) == []
    return plan.claims


def test_a_daemon_that_wants_a_device_does_not_make_every_node_one_with_the_device():
    """The daemon stays pending on the others, and every pod would get a node at twenty times the price."""
    (claim,) = claims(asking([agent(**{GPU: "1"})], pod("web", cpu="1")))
    assert set(claim.instance_types) == {"plain", "zero", "one", "two"}
    assert claim.cheapest.instance_type == "plain"
    assert GPU not in claim.requests
    assert claim.requests["cpu"] == 2000, "what else it requests counts"


def test_a_daemon_that_wants_a_device_nobody_sells_does_not_stop_all_launches():
    (claim,) = claims(asking([agent(**{"example.com/fuse": "1"})], pod("web", cpu="1")))
    assert claim.cheapest.instance_type == "plain"
    assert "example.com/fuse" not in claim.requests


def test_a_daemon_takes_its_device_where_there_is_one():
    (claim,) = claims(asking([agent(**{GPU: "1"})], pod("job", requests={GPU: "1"})))
    assert claim.instance_types == ("two",)
    assert claim.requests[GPU] == 2


@pytest.mark.parametrize("amounts", [{"cpu": "5"}, {GPU: "3"}], ids=["cores", "devices"])
def test_a_daemon_that_wants_more_than_a_type_has_still_takes_it(amounts):
    """Larger ones would run it."""
    plan = solve(asking([agent(**amounts)], pod("web", cpu="1"), market=(ONE, TWO)))
    (why,) = plan.unschedulable.values()
    assert why.pools["default"].constraint is PoolConstraint.DAEMON
