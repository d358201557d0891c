"""Pods whose nodes failed before wait, or go to other NodePools."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.state.events import RegistrationSettled
from karpenter_core.state.paused_pods import demands_of, split_paused
from karpenter_core.state.provisioning_input import build_provisioning_input
from karpenter_core.testing.builders import EPOCH, node_pool, pod, standard_catalogue
from karpenter_core.testing.state_builders import node_claim, ready_node_pool, synced_state

POOL, SPARE = (ready_node_pool(node_pool(name)) for name in ("default", "spare"))
WEB, TWIN, BATCH = pod("web"), pod("twin"), pod("batch", cpu="2")
LATER = EPOCH + timedelta(minutes=1)


def failed(builder, *pods):
    for each in pods:
        for _ in range(2):
            demands = demands_of(iter([each]))
            builder.apply_event(
                RegistrationSettled(pool_uid=POOL.uid, succeeded=False, demands=demands)
            )
    return builder


def succeeded(builder):
    builder.apply_event(RegistrationSettled(pool_uid=POOL.uid, succeeded=True))
    return builder


def split(builder, pods, *, pools=(POOL,), now=EPOCH, places=None):
    result = split_paused(pods, places or {}, builder.snapshot(), now, pools)
    names = [each.name for each in result.pods], [each.name for each, _ in result.paused]
    return *names, result.elsewhere


def test_only_pods_of_the_kind_that_failed_wait():
    builder = failed(synced_state(POOL, WEB, BATCH), WEB)
    assert split(builder, (WEB, BATCH)) == (["batch"], ["web"], {})


def test_after_the_pause_one_of_them_is_tried():
    builder = failed(synced_state(POOL, WEB, TWIN), WEB)
    assert split(builder, (WEB, TWIN), now=LATER) == (["web"], ["twin"], {})


@pytest.mark.parametrize(("is_healthy", "tried"), [(True, ["batch"]), (False, [])])
def test_one_kind_at_a_time_is_tried_in_a_pool_that_is_on_trial(is_healthy, tried):
    """Otherwise each workload of a broken NodePool would have a node of its own that costs money."""
    builder = failed(synced_state(POOL, WEB, BATCH, node_claim("trial")), WEB, BATCH)
    if is_healthy:
        succeeded(builder)
    trial = builder.snapshot().state_node("trial")
    kept, _, _ = split(builder, (BATCH,), now=LATER, places={trial: [WEB]})
    assert kept == tried


def test_such_pods_go_to_another_pool_meanwhile():
    builder = failed(synced_state(POOL, SPARE, WEB, TWIN), WEB)
    kept, paused, elsewhere = split(builder, (WEB, TWIN), pools=(POOL, SPARE), now=LATER)
    assert (kept, paused, set(elsewhere)) == (["web", "twin"], [], {TWIN.uid})
    (reason,) = elsewhere[TWIN.uid].items()
    assert reason[0] == "default"
    assert "as a test" in reason[1]


def test_the_problem_keeps_them_off_the_pool_that_failed_them():
    types = dict.fromkeys(("default", "spare"), standard_catalogue())
    builder = succeeded(failed(synced_state(POOL, SPARE, WEB, BATCH, catalogues=types), WEB))
    pods = {
        each.name: each
        for each in build_provisioning_input(builder.snapshot(), now=EPOCH).problem.pods
    }
    assert pods["batch"].shape is BATCH.shape
    assert [
        (each.key, each.operator, each.values)
        for term in pods["web"].shape.required_node_terms
        for each in term.match_expressions
    ] == [("karpenter.sh/nodepool", "NotIn", ("default",))]
