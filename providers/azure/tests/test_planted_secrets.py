"""Plants secrets wherever the controller is given some, lets calls fail, and looks for them.

Azure is the provider with the most of them: a bootstrap token among its settings, and boot data that
carries it to every instance.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import generate_latest

from karpenter_core.cli.dashboard.content import ClusterContent
from karpenter_core.kube.resources import EVENTS, NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.operator.dashboard.process_dashboard import ProcessDashboard
from karpenter_core.operator.dashboard_content import Role
from karpenter_core.operator.journal_page import decisions_page
from karpenter_core.operator.logs import configure_logs
from karpenter_core.operator.profiling import profiling_routes
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.sim.faults import RequestFault
from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from providers.azure.tests.registrar import joining
from providers.azure.tests.stages import CloudStage, pod_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from karpenter_core.operator.process import Process
    from karpenter_core.testing.provider_cluster import ProviderCluster

SIZE = "Standard_D2s_v5"
TOKEN = "p1ante.bootstraptoken01"
POD_SECRET = "planted-pod-variable"
ENVIRONMENT = {
    "AWS_SECRET_ACCESS_KEY": "planted-aws-key",
    "AWS_SESSION_TOKEN": "planted-aws-session",
    "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "planted-alibaba-key",
    "AZURE_CLIENT_CERTIFICATE_PASSWORD": "planted-azure-secret",
}
PLANTED = (TOKEN, TOKEN.partition(".")[2], POD_SECRET, "planted-object", *ENVIRONMENT.values())


@pytest.fixture(scope="module")
def cloud_stage() -> Iterator[CloudStage]:
    made = CloudStage({SIZE})
    with made.open():
        yield made


def found_in(texts: dict[str, str]) -> set[tuple[str, str]]:
    """Return the secrets that a text has, as they are or in base64, by the name of the text."""
    forms = {
        secret: {
            secret,
            *(base64.b64encode(b" " * n + secret.encode())[4:-4].decode() for n in range(3)),
        }
        for secret in PLANTED
    }
    return {
        (name, secret)
        for name, text in texts.items()
        for secret, written in forms.items()
        if any(form in text for form in written)
    }


def pool() -> dict[str, Any]:
    requirements = {"node.kubernetes.io/instance-type": [SIZE]}
    return node_pool_manifest(AKSNodeClass, requirements=requirements)


def pod(name: str) -> dict[str, Any]:
    made = pod_manifest(name)
    (container,) = made["spec"]["containers"]
    container["env"] = [{"name": "PASSWORD", "value": POD_SECRET}]
    container["args"] = [f"--password={POD_SECRET}"]
    return made


SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "login", "namespace": "default"},
    "stringData": {"password": "planted-object"},
}


def dashboard_documents(process: Process) -> dict[str, str]:
    """Return everything that the dashboard of the process would show."""
    content = ClusterContent()
    parts = process._controller_parts()
    dashboard = ProcessDashboard(
        replace(parts, platform=replace(parts.platform, dashboard=content)),
        role=lambda: Role.LEADER,
        leader=lambda: "",
        problems=lambda: (),
        publish=lambda _: None,
    )
    moment = dashboard._take_moment()
    nodes, pods = moment.snapshot.state_nodes, moment.snapshot.pods.values()
    assert nodes
    assert pods
    documents: dict[str, object] = {
        "state": content.state(moment),
        "decisions": [content.decision(each) for each in process.runtime.journal.latest()],
        **{f"pods of {each.name}": content.pods_of(moment, each.name) for each in nodes},
        **{f"node {each.name}": content.explain_node(moment, each.name) for each in nodes},
        **{f"pod {each.key}": content.explain_pod(moment, each.key) for each in pods},
    }
    return {f"dashboard: {name}": json.dumps(each) for name, each in documents.items()}


def test_planted_secrets_are_neither_written_nor_served(
    cloud_stage: CloudStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    arguments = ["karpenter", "run", f"--kubelet-bootstrap-token={TOKEN}"]
    monkeypatch.setattr("sys.argv", arguments)
    logs, journal = tmp_path / "log.jsonl", tmp_path / "journal.jsonl"
    close = configure_logs(
        load_settings([f"--log-output-paths={logs}", "--log-level=debug", "--log-format=json"], {})
    )
    texts: dict[str, str] = {}
    boot_data: list[str] = []

    async def scenario(cluster: ProviderCluster) -> None:
        harness, cloud = cluster.harness, cloud_stage.cloud
        harness.cluster.frontend.faults.add(
            RequestFault(
                matches=lambda request: request.method == "PATCH" and "nodeclaims" in request.path,
                times=3,
                status=500,
            )
        )
        cluster.apply(SECRET, cloud_stage.node_class(), pool())
        await cluster.until_ready("True")
        refused = cloud.fail("virtualMachines:put", code="InternalError", status=500, times=None)
        async with joining(cloud, cluster):
            with refused:
                cluster.apply(pod("web"))
                await cluster.advance_minutes(3)
            with cloud.fail("tokens:post", code="invalid_client", status=401, times=4):
                await harness.settle(lambda: bool(harness.pods("Running")), seconds=1800)
        boot_data.extend(str(call.parameters) for call in cloud.calls.of("virtualMachines:put"))
        for kind in (EVENTS, NODE_CLAIMS, NODE_POOLS, NODES):
            texts[kind.plural] = json.dumps(harness.cluster.list(kind))
        texts["conditions of the node class"] = json.dumps(cluster.conditions())
        process = cluster.running.process
        texts["metrics"] = generate_latest(process.metrics.registry).decode()
        texts["decisions"] = decisions_page(process.runtime.journal, {}).decode()
        texts.update(dashboard_documents(process))
        for path, render in profiling_routes().items():
            texts[path] = render()
        texts["settings"] = repr(process.settings)
        with cloud.fail("tokens:post", code="invalid_client", status=401, times=None):
            texts["doctor"] = str(await cluster.user_messages())

    try:
        cloud_stage.play(
            tmp_path, scenario, kubelet_bootstrap_token=TOKEN, decision_journal=str(journal)
        )
    finally:
        close()
    texts["log"], texts["journal"] = logs.read_text(), journal.read_text()

    assert ("boot data", TOKEN) in found_in({"boot data": "".join(boot_data)})
    assert '"ERROR"' in texts["log"]
    assert texts["journal"]
    assert found_in(texts) == set()
