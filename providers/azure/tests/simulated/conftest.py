"""Azure Resource Manager without virtual machines, served over TLS, and clients for it."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from http.client import HTTPSConnection
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import pytest

from karpenter_core.provider.kit.simulated.cloud_time import CloudTime
from karpenter_core.provider.kit.simulated.server import HttpServer
from karpenter_simulated_azure.certificates import Certificates
from karpenter_simulated_azure.resource_manager import ResourceManager
from karpenter_simulated_azure.tokens import CLIENT_SECRET
from karpenter_simulated_azure.world import AzureWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "2024-07-01"
SCOPE = "https://management.azure.com/.default"


@dataclass
class Answer:
    """A plain answer."""

    status: int
    headers: dict
    body: dict | None

    @property
    def code(self):
        return self.body["error"]["code"]


@dataclass
class Served:
    """A resource manager that is served."""

    manager: ResourceManager
    time: CloudTime
    certificates: Certificates
    url: str
    trust: ssl.SSLContext

    @property
    def world(self):
        return self.manager.world

    def group(self, tail):
        """The path of a resource in the node resource group."""
        return f"{self.world.group_path()}/providers/{tail}"

    def subscription(self, tail):
        return f"{self.world.subscription_path}/providers/{tail}"

    def send(self, method, path, body=None, *, token=None, version=VERSION, headers=None, **query):
        """Send one plain request; `token` may be empty for none."""
        if version:
            query["api-version"] = version
        sent = dict(headers or {})
        token = self.token() if token is None else token
        if token:
            sent["Authorization"] = f"Bearer {token}"
        content = body
        if isinstance(body, (dict, list)):
            content, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        return self.raw(method, f"{path}?{urlencode(query)}" if query else path, content, sent)

    def raw(self, method, target, content=None, headers=None):
        parts = urlsplit(self.url)
        connection = HTTPSConnection(parts.hostname, parts.port, context=self.trust, timeout=10)
        try:
            connection.request(method, target, body=content, headers=headers or {})
            reply = connection.getresponse()
            text = reply.read()
            found = {name.lower(): value for name, value in reply.getheaders()}
            return Answer(reply.status, found, json.loads(text) if text else None)
        finally:
            connection.close()

    def ask_token(self, tenant=None, **form):
        """Ask for a token as a client does that has the secret."""
        sent = {
            "grant_type": "client_credentials",
            "client_id": self.world.client_id,
            "client_secret": CLIENT_SECRET,
            "scope": SCOPE,
        } | form
        path = f"/{tenant or self.world.tenant_id}/oauth2/v2.0/token"
        content = urlencode(sent).encode()
        return self.raw(
            "POST", path, content, {"Content-Type": "application/x-www-form-urlencoded"}
        )

    def token(self, **form):
        return self.ask_token(**form).body["access_token"]

    def calls(self, action):
        return self.manager.application.endpoint.calls.count(action)


@pytest.fixture(scope="session")
def arm_server() -> Iterator[Served]:
    """A resource manager that serves all along; tests take `served`."""
    time = CloudTime()
    manager = ResourceManager(AzureWorld(), time)
    certificates = Certificates()
    server = HttpServer(
        manager.application.endpoint,
        name="simulated-azure",
        tls=certificates.server_context(),
    )
    server.start()
    trust = ssl.create_default_context(cafile=str(certificates.ca_bundle))
    yield Served(manager, time, certificates, server.endpoint_url, trust)
    server.stop()
    certificates.remove()


@pytest.fixture
def served(arm_server):
    """A resource manager as it is in the beginning."""
    endpoint = arm_server.manager.application.endpoint
    endpoint.faults.clear()
    endpoint.throttling.set({})
    endpoint.calls.clear()
    arm_server.time.reset()
    arm_server.manager.reset()
    return arm_server


@pytest.fixture
def workload_identity(served, monkeypatch, tmp_path):
    """The environment of a pod with workload identity, and nothing else of Azure."""
    token_file = tmp_path / "token"
    token_file.write_text(served.manager.application.tokens.federated_token())
    for name in ("AZURE_CLIENT_SECRET", "AZURE_USERNAME", "AZURE_TOKEN_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", served.url)
    monkeypatch.setenv("AZURE_TENANT_ID", served.world.tenant_id)
    monkeypatch.setenv("AZURE_CLIENT_ID", served.world.client_id)
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(token_file))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(served.certificates.ca_bundle))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return token_file
