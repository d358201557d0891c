"""A scripted server over TLS, and clients of it through the SDK."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from karpenter_provider_azure.arm.client import ArmClient
from karpenter_provider_azure.arm.credentials import CappedCredential

from .tls_server import ScriptedServer
from .values import settings_for


class TokenSource:
    """A credential of the SDK that gives numbered tokens."""

    def __init__(self):
        self.requests = []
        self.closed = 0
        self.lifetime = 3600
        self.error = None

    def get_token(self, *scopes, **options):
        self.requests.append((scopes, options))
        if self.error is not None:
            raise self.error
        return SimpleNamespace(
            token=f"token-{len(self.requests)}", expires_on=int(time.time()) + self.lifetime
        )

    def close(self):
        self.closed += 1


@pytest.fixture(scope="session")
def _server(tmp_path_factory):
    scripted = ScriptedServer()
    server = scripted.serve(tmp_path_factory.mktemp("tls"))
    server.start()
    yield scripted
    server.stop()


@pytest.fixture
def server(_server, monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    _server.replies.clear()
    _server.received.clear()
    return _server


@pytest.fixture
def tokens():
    return TokenSource()


@pytest.fixture
def waits():
    return []


@pytest.fixture
def observed():
    return []


@pytest.fixture
def remaining():
    return []


@pytest.fixture
def client(server, tokens, waits, observed, remaining):
    made = ArmClient(
        settings_for(server.url, server.ca_bundle),
        credential=CappedCredential(lambda: tokens, outages=None),
        observe=lambda action, code, _seconds: observed.append((action, code)),
        observe_remaining=remaining.append,
        sleep=waits.append,
    )
    yield made
    made.close()
