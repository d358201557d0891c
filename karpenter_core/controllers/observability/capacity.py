"""Computes gauges of spot shares, devices and predicted pod requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from karpenter_core.controllers.observability.costs import BATCH_SIZE
from karpenter_core.controllers.observability.node_series import amount_of, snake_case
from karpenter_core.state.device_inventory import device_counts
from karpenter_core.state.node_pool_usage import spot_shares
from karpenter_core.state.request_predictions import RequestPredictions

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.controllers.metrics.process_metrics import Metrics
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["show_devices", "show_predictions", "show_spot_shares"]


def show_spot_shares(metrics: Metrics, snapshot: Snapshot) -> None:
    """Show the desired and the actual share of spot of each NodePool that has one."""
    gauge = metrics.capacity.nodepools_spot_share
    gauge.clear()
    for name, (desired, actual) in spot_shares(snapshot).items():
        gauge.labels(nodepool=name, kind="desired").set(desired)
        if actual is not None:
            gauge.labels(nodepool=name, kind="actual").set(actual)


def show_devices(metrics: Metrics, snapshot: Snapshot) -> None:
    """Show how many devices are published, and how many are allocated."""
    metrics.capacity.devices.clear()
    for (driver, pool, state), count in device_counts(snapshot).items():
        metrics.capacity.devices.labels(driver=driver, nodepool=pool, state=state).set(count)


async def show_predictions(metrics: Metrics, snapshot: Snapshot, now: datetime) -> None:
    """Show by how much the requests of pods change when these are created again."""
    predictions = RequestPredictions(snapshot, now)
    pods, total = 0, Counter[str]()
    for start in range(0, len(snapshot.state_nodes) if predictions else 0, BATCH_SIZE):
        for state_node in snapshot.state_nodes[start : start + BATCH_SIZE]:
            for pod in state_node.pods:
                if change := predictions.change(pod):
                    pods += 1
                    for name, amount in change.items():  # `update` would drop what is below zero
                        total[name] += amount
        await asyncio.sleep(0)
    metrics.capacity.pods_predicted.set(pods)
    metrics.capacity.pods_predicted_change.clear()
    for name, amount in total.items():
        metrics.capacity.pods_predicted_change.labels(resource_type=snake_case(name)).set(
            amount_of(name, amount)
        )
