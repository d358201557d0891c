"""The metrics port asks a real API server about tokens: its answers, permissions and refusals."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio

from karpenter_core.cli.rbac import render_rbac
from karpenter_core.kube.resources import ResourceKind
from karpenter_provider_kwok.plugin import KwokProvider
from tests.e2e.kwok import KwokCloud
from tests.support.certificates import CertificateAuthority
from tests.support.runner import ScenarioWorld

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.controller import ControllerProcess
    from tests.support.local_clusters import RealLocalCluster

ROOT = Path(__file__).parents[2]
CRDS = tuple(sorted((ROOT / "crds").glob("*.yaml")))
RBAC = "rbac.authorization.k8s.io"
KINDS = {
    kind: ResourceKind(RBAC, "v1", f"{kind.lower()}s", kind, namespaced=not kind.startswith("C"))
    for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
}
ACCOUNTS = ResourceKind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
CONTROLLER = "system:serviceaccount:kube-system:guarded"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(240),
]


def account(name):
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": "default"},
    }


ROLE = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "metrics-reader"},
    "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
}
BINDING = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "metrics-reader"},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "metrics-reader"},
    "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}],
}


class GuardedPort:
    """The metrics port of a controller that runs with the permissions for reviews only."""

    def __init__(self, world: ScenarioWorld, controller: ControllerProcess, trust: Path) -> None:
        self.world, self.controller = world, controller
        self.tls = ssl.create_default_context(cafile=str(trust))

    async def token(self, name: str, **spec: object) -> str:
        path = ACCOUNTS.path(namespace="default", name=name, subresource="token")
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 600, **spec},
        }
        answer = await self.world.client.request("POST", path, request)
        return answer["status"]["token"]

    async def status(self, token: str | None, path: str = "/metrics") -> int:
        url = self.controller.metrics_url.replace("http://", "https://").replace("/metrics", path)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers, ssl=self.tls) as response,
        ):
            body = await response.text()
            assert response.status != 200 or "karpenter_build_info" in body
            return response.status


@pytest_asyncio.fixture(loop_scope="session")
async def port(real_local_cluster: RealLocalCluster, tmp_path) -> AsyncIterator[GuardedPort]:
    authority = CertificateAuthority(tmp_path / "pki")
    certificate, key = authority.issue("metrics", "metrics", hosts=["127.0.0.1"])
    kubeconfig = real_local_cluster.control_plane.write_kubeconfig(
        CONTROLLER, organization="nobody"
    )
    roles = render_rbac(
        [KwokProvider().karpenter_provider_info()],
        namespace="kube-system",
        service_account="guarded",
        metrics_token_auth=True,
    )
    cloud_objects = [*roles, ROLE, BINDING]
    async with ScenarioWorld(real_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        for made in cloud_objects:
            await world.client.create(KINDS[made["kind"]], made)
        for name in ("prometheus", "other"):
            await world.client.create(ACCOUNTS, account(name))
        try:
            controller = world.add_controller(
                kubeconfig=kubeconfig,
                options={
                    "providers": "kwok",
                    "leader-election-namespace": "kube-system",
                    "metrics-tls-cert-file": str(certificate),
                    "metrics-tls-key-file": str(key),
                    "metrics-token-auth": "true",
                },
            )
            await controller.start()
            yield GuardedPort(world, controller, authority.certificate_file)
        finally:
            for made in reversed(cloud_objects):
                metadata = made["metadata"]
                await world.client.delete(
                    KINDS[made["kind"]], metadata["name"], metadata.get("namespace", "")
                )
            for each in await world.client.list(ACCOUNTS):
                name = each["metadata"]["name"]
                if name in {"prometheus", "other"}:
                    await world.client.delete(ACCOUNTS, name, "default")


async def test_tokens_and_roles_of_the_cluster_decide_who_reads_metrics(port: GuardedPort):
    scraper = await port.token("prometheus")

    assert await port.status(scraper) == 200
    assert await port.status(scraper, "/debug/decisions") == 403
    assert await port.status(await port.token("other")) == 403
    assert await port.status(None) == 401
    assert await port.status("no-token-of-this-cluster") == 401
    assert await port.status(f"{scraper[:-6]}AAAAAA") == 401  # the signature does not fit
    assert await port.status(await port.token("prometheus", audiences=["vault"])) == 401

    unused = await port.token("prometheus")
    await port.world.client.delete(ACCOUNTS, "prometheus", "default")
    assert await port.status(unused) == 401

    log = port.controller.process.log_text()
    assert scraper not in log
    assert "Traceback" not in log


async def silent(host_and_port: tuple[str, int], tls: ssl.SSLContext | None, number: int):
    """Open connections that ask for nothing, with or without a handshake."""
    opened = []
    for _ in range(number):
        with suppress(OSError):
            opened.append(await asyncio.open_connection(*host_and_port, ssl=tls))
    return opened


async def test_a_flood_takes_little_memory_and_keeps_no_scraper_out(port: GuardedPort):
    """Connections that are silent before and after the handshake, and tokens that nobody knows."""
    scraper = await port.token("prometheus")
    url = urlsplit(port.controller.metrics_url)
    address = (url.hostname or "", url.port or 0)
    assert await port.status(scraper) == 200
    before = port.controller.process.memory_bytes()

    opened = await silent(address, None, 1_000) + await silent(address, port.tls, 150)
    guesses = [port.status(f"guess-{number}") for number in range(60)]
    refused = await asyncio.gather(*guesses, return_exceptions=True)

    assert await port.status(scraper) == 200
    for _, writer in opened:
        writer.transport.abort()
    assert {each for each in refused if isinstance(each, int)} <= {401, 503}
    assert port.controller.process.memory_bytes() - before < 100 * 2**20
    assert await port.controller.is_ready()
    assert "Traceback" not in port.controller.process.log_text()
