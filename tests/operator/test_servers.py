"""Metrics and probes answer scrapers and kubelets."""

from __future__ import annotations

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.registry import Collector

from karpenter_core.controllers.metrics.object_series import ObjectSeries
from karpenter_core.errors import SettingsError
from karpenter_core.operator.servers import HttpServers, ReadinessCheck


@pytest.fixture
async def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("karpenter_launches", "Launches.", registry=registry).inc(3)
    return registry


def servers(registry, *checks, metrics_port=0):
    return HttpServers(
        registry=registry,
        checks=checks,
        address="127.0.0.1",
        metrics_port=metrics_port,
        probe_port=0,
    )


async def fetch(port: int, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_metrics_are_served_on_the_metrics_port(registry):
    """In the text format."""
    both = servers(registry)
    await both.start()
    try:
        status, text = await fetch(both.metrics_port, "/metrics")
    finally:
        await both.stop()

    assert status == 200
    assert "karpenter_launches_total 3.0" in text


async def test_readiness_names_the_check_that_fails(registry):
    """Liveness does not depend on it."""
    problem: list[str | None] = ["waiting for nodepools.karpenter.sh"]
    both = servers(registry, ReadinessCheck(name="crd", failure=lambda: problem[0]))
    await both.start()
    try:
        alive = await fetch(both.probe_port, "/healthz")
        before = await fetch(both.probe_port, "/readyz")
        problem[0] = None
        after = await fetch(both.probe_port, "/readyz")
    finally:
        await both.stop()

    assert alive == (200, "ok")
    assert before == (500, "[-]crd failed: waiting for nodepools.karpenter.sh\n")
    assert after == (200, "[+]crd ok\n")


async def test_a_taken_port_names_the_option(registry):
    """The message says which flag to change."""
    first = servers(registry)
    await first.start()
    second = servers(registry, metrics_port=first.metrics_port)
    try:
        with pytest.raises(SettingsError, match=f"metrics-port.*{first.metrics_port}"):
            await second.start()
    finally:
        await second.stop()
        await first.stop()


async def test_metrics_of_many_pieces_arrive_whole(registry, monkeypatch):
    """And none of them for a HEAD request."""
    monkeypatch.setattr("karpenter_core.operator.exposition.PIECE_CHARACTERS", 100)
    gauge = ObjectSeries("depth", "Depth.", ("name",), registry=registry)
    gauge.set_rows([((f"web-{number}",), float(number)) for number in range(500)])
    both = servers(registry)
    await both.start()
    try:
        _, text = await fetch(both.metrics_port, "/metrics")
        url = f"http://127.0.0.1:{both.metrics_port}/metrics"
        async with aiohttp.ClientSession() as session, session.head(url) as response:
            head = response.status, response.headers["Content-Type"]
    finally:
        await both.stop()

    assert generate_latest(registry).decode() == text
    assert head[0] == 200
    assert head[1].startswith("text/plain")


async def test_metrics_that_cannot_be_collected_are_an_error(registry):
    """A partial scrape would show objects as gone."""

    class Broken(Collector):
        def describe(self):
            return ()

        def collect(self):
            raise RuntimeError("no numbers")

    registry.register(Broken())
    both = servers(registry)
    await both.start()
    try:
        status, _ = await fetch(both.metrics_port, "/metrics")
    finally:
        await both.stop()

    assert status == 500
