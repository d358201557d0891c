"""Plants secrets wherever a controller is given some, and finds them in all that it writes and serves."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import generate_latest

from karpenter_core.cli.dashboard.content import ClusterContent
from karpenter_core.cli.snapshot.redaction import redacted
from karpenter_core.kube.resources import EVENTS, NODES, PODS, custom_kind
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.operator.dashboard.process_dashboard import ProcessDashboard
from karpenter_core.operator.dashboard_content import Role
from karpenter_core.operator.journal_page import decisions_page
from karpenter_core.operator.logs import configure_logs
from karpenter_core.operator.profiling import profiling_routes
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.sim.faults import RequestFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from karpenter_core.operator.process import Process
    from karpenter_core.testing.provider_cluster import ProviderCluster

__all__ = [
    "ENVIRONMENT",
    "OF_ALL",
    "SECRET",
    "assert_looked_at",
    "found_in",
    "refuse_patches",
    "texts_of",
    "with_secret",
]

POD_SECRET: Final = "planted-pod-variable"
ENVIRONMENT: Final = {
    "AWS_SECRET_ACCESS_KEY": "planted-aws-key",
    "AWS_SESSION_TOKEN": "planted-aws-session",
    "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "planted-alibaba-key",
    "AZURE_CLIENT_CERTIFICATE_PASSWORD": "planted-azure-secret",
}
SECRET: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "login", "namespace": "default"},
    "stringData": {"password": "planted-object"},
}
OF_ALL: Final = (POD_SECRET, "planted-object", *ENVIRONMENT.values())
"""The secrets that every provider's test plants."""


def with_secret(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with a secret in its environment and arguments."""
    (container,) = pod["spec"]["containers"]
    container["env"] = [{"name": "PASSWORD", "value": POD_SECRET}]
    container["args"] = [f"--password={POD_SECRET}"]
    return pod


def found_in(texts: Mapping[str, str], secrets: Iterable[str]) -> set[tuple[str, str]]:
    """Return the secrets that a text has, as they are or in base64, by the name of the text."""
    forms = {
        secret: {
            secret,
            *(base64.b64encode(b" " * n + secret.encode())[4:-4].decode() for n in range(3)),
        }
        for secret in secrets
    }
    return {
        (name, secret)
        for name, text in texts.items()
        for secret, written in forms.items()
        if any(form in text for form in written)
    }


def assert_looked_at(texts: Mapping[str, str]) -> None:
    """Make sure that the texts tell of a run with a pod `web`, with errors, and of every part.

    Raises:
        AssertionError: they do not.
    """
    assert '"ERROR"' in texts["log"]
    assert '"web"' in texts["snapshot"]
    assert "default/web" in texts["dashboard"]
    assert "general" in texts["journal"]
    assert "general" in texts["decisions"]
    assert "karpenter_nodeclaims_created_total" in texts["metrics"]
    assert all(texts.values()), [name for name, text in texts.items() if not text]


def refuse_patches(cluster: ProviderCluster) -> None:
    """Let the API server refuse the next changes of NodeClaims, so that errors are logged."""
    fault = RequestFault(
        matches=lambda request: request.method == "PATCH" and "nodeclaims" in request.path,
        times=3,
        status=500,
    )
    cluster.harness.cluster.frontend.faults.add(fault)


def texts_of(
    folder: Path,
    play: Callable[[Callable[[ProviderCluster], Awaitable[None]], Path], None],
    scenario: Callable[[ProviderCluster], Awaitable[Mapping[str, str]]],
) -> dict[str, str]:
    """Play a scenario, and return all that the process writes and serves, by what it is.

    `play` runs one with a decision journal in a file; the scenario may return further texts.
    """
    logs, journal = folder / "log.jsonl", folder / "journal.jsonl"
    texts: dict[str, str] = {}

    async def whole(cluster: ProviderCluster) -> None:
        texts.update(await scenario(cluster))
        texts.update(await _served(cluster))

    options = [f"--log-output-paths={logs}", "--log-level=debug", "--log-format=json"]
    close = configure_logs(load_settings(options, {}))
    try:
        play(whole, journal)
    finally:
        close()
    return {**texts, "log": logs.read_text(), "journal": journal.read_text()}


async def _served(cluster: ProviderCluster) -> dict[str, str]:
    process, server = cluster.running.process, cluster.harness.cluster
    kinds = (EVENTS, NODE_CLAIMS, NODE_POOLS, NODES)
    return {
        **{kind.plural: json.dumps(server.list(kind)) for kind in kinds},
        "conditions of the NodeClass": json.dumps(cluster.conditions()),
        "metrics": generate_latest(process.metrics.registry).decode(),
        "decisions": decisions_page(process.runtime.journal, {}).decode(),
        **{path: render() for path, render in profiling_routes().items()},
        "settings": repr(process.settings),
        "doctor": str(await cluster.user_messages()),
        "snapshot": json.dumps(_snapshot(cluster)),
        "dashboard": json.dumps(_dashboard(process), default=str),
    }


def _snapshot(cluster: ProviderCluster) -> list[dict[str, Any]]:
    """Return the objects as `karpenter snapshot` saves them."""
    node_classes = custom_kind(cluster.spec.model.resource)
    return [
        redacted(item, group=kind.group, kind=kind.kind, is_node_class=kind is node_classes)
        for kind in (node_classes, NODE_CLAIMS, NODE_POOLS, NODES, PODS)
        for item in cluster.harness.cluster.list(kind)
    ]


def _dashboard(process: Process) -> list[dict[str, object]]:
    """Return every document of the dashboard."""
    content = ClusterContent()
    parts = process._controller_parts()
    shown = ProcessDashboard(
        replace(parts, platform=replace(parts.platform, dashboard=content)),
        role=lambda: Role.LEADER,
        leader=lambda: "",
        problems=lambda: (),
        publish=parts.publish,
    )
    moment = shown._take_moment()
    nodes, pods = moment.snapshot.nodes, moment.snapshot.pods.values()
    return [
        content.state(moment),
        content.rebalance(moment),
        *(content.decision(each) for each in process.runtime.journal.latest()),
        *(content.pods_of(moment, name) for name in nodes),
        *(content.explain_node(moment, name) for name in nodes),
        *(content.explain_pod(moment, f"{each.namespace}/{each.name}") for each in pods),
    ]
