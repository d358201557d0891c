"""Fixtures of discovery: one set of clients for all tests, an empty account for each."""

from __future__ import annotations

import pytest

from karpenter_provider_aws.sdk import ClientLimits, CloudClients
from karpenter_simulated_aws.testing import attempts
from providers.aws.tests.discovery.moto_world import HandClock

REGION = "us-east-1"


@pytest.fixture(scope="session")
def shared_clients():
    """Clients take a second to make, and have moto's handlers only if it was imported before."""
    import moto.core.models  # noqa: F401

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        patch.delenv("AWS_PROFILE", raising=False)
        clients = CloudClients(
            region=REGION, limits=ClientLimits(retries=attempts(1)), every_operation=True
        )
        for service in ("ec2", "iam", "ssm"):
            getattr(clients, service)
        yield clients
        clients.close()


@pytest.fixture
def clients(shared_clients, monkeypatch):
    """An empty account, without the thousand images of moto."""
    from moto import mock_aws

    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    with mock_aws():
        yield shared_clients


@pytest.fixture
def clock():
    """A clock that is moved by hand."""
    return HandClock()
