"""Gauges of what the requests of pods will be follow the state, and vanish with their reason."""

from __future__ import annotations

import asyncio

from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.observability.capacity import show_devices, show_predictions
from karpenter_core.controllers.observability.cluster import ClusterMetricsController
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.operator.clock import random_id
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node_and_claim, synced_state
from tests.state.test_request_predictions import autoscaler, pod


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, labels)


def test_predicted_changes_are_shown_until_no_autoscaler_asks_for_them():
    metrics = Metrics()
    objects = [*node_and_claim("a"), pod(node="a")]
    raised = synced_state(*objects, autoscaler(targets={"web": {"cpu": "3"}})).snapshot()
    change = "karpenter_pods_predicted_requests_change"

    asyncio.run(show_predictions(metrics, raised, EPOCH))
    assert value(metrics, change, resource_type="cpu") == 2

    asyncio.run(show_predictions(metrics, synced_state(*objects).snapshot(), EPOCH))
    assert value(metrics, change, resource_type="cpu") is None


def test_devices_that_are_not_published_any_more_have_no_series():
    metrics = Metrics()
    metrics.capacity.devices.labels(driver="gone", nodepool="general", state="free").set(1)
    show_devices(metrics, synced_state().snapshot())
    assert not list(metrics.capacity.devices.collect()[0].samples)


def test_the_gauges_of_a_cluster_have_those_of_predictions():
    metrics = Metrics()

    async def scenario():
        clock = LoopClock()
        objects = [*node_and_claim("a"), pod(node="a"), autoscaler(targets={"web": {"cpu": "3"}})]
        await ClusterMetricsController(
            cluster_state=ClusterState(synced_state(*objects), clock),
            runtime=ControllerRuntime(clock=clock, new_id=random_id, metrics=metrics),
            detailed=True,
            solve=None,
            problem_settings=None,
        )._step()

    run_virtual(scenario())
    assert value(metrics, "karpenter_pods_predicted_requests_change", resource_type="cpu") == 2
