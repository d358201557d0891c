"""The doctor reports on a controller that runs as another process."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.cli.doctor.process import check_process
from karpenter_core.operator.servers import HttpServers, ReadinessCheck
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.contract import Severity
from tests.support.processes import free_ports

STALE = "not fresh: pods (silent for 95 s: list pods: forbidden)"


@pytest.mark.parametrize(
    ("failure", "severity", "message"),
    [
        (STALE, Severity.ERROR, f"not ready: freshness failed: {STALE}"),
        (None, Severity.OK, "ready, says http://127.0.0.1:{port}/readyz"),
    ],
)
async def test_a_controller_beside_it_says_whether_it_is_ready(failure, severity, message):
    servers = HttpServers(
        registry=CollectorRegistry(),
        checks=(ReadinessCheck(name="freshness", failure=lambda: failure),),
        address="127.0.0.1",
        metrics_port=0,
        probe_port=0,
    )
    await servers.start()
    try:
        findings = await check_process(
            load_settings([], {"HEALTH_PROBE_PORT": str(servers.probe_port)})
        )
    finally:
        await servers.stop()
    assert (findings.severity, findings.message) == (
        severity,
        message.format(port=servers.probe_port),
    )


async def test_no_controller_here_is_no_finding():
    (port,) = free_ports(1)
    findings = await check_process(load_settings([], {"HEALTH_PROBE_PORT": str(port)}))
    assert findings.severity is Severity.OK
    assert "no controller runs on this host" in findings.message
