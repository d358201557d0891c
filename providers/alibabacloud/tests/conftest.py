"""The simulated Alibaba Cloud for all tests of the provider: one server for the session, a fresh cloud
for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from karpenter_provider_alibabacloud.sdk import ClientLimits, CloudClients

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@pytest.fixture(scope="session")
def cloud_server() -> Iterator[SimulatedAlibabaCloud]:
    """A simulated Alibaba Cloud that serves all along; tests take `cloud`."""
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud

    with SimulatedAlibabaCloud() as made:
        yield made


@pytest.fixture(scope="session")
def cloud_clients(cloud_server: SimulatedAlibabaCloud) -> Iterator[CloudClients]:
    """Clients for the session, as making one takes longer than a test; tests take `clients`."""
    endpoint = cloud_server.endpoint
    with CloudClients(
        region=cloud_server.account.region,
        endpoint_ecs=endpoint,
        endpoint_vpc=endpoint,
        endpoint_cs=endpoint,
        protocol="http",
        limits=ClientLimits(read_seconds=10),
        sleep=lambda _seconds: None,
    ) as made:
        yield made


@pytest.fixture
def cloud(
    cloud_server: SimulatedAlibabaCloud, monkeypatch: pytest.MonkeyPatch
) -> SimulatedAlibabaCloud:
    """The simulated cloud as it is in the beginning; the environment leads to it, past proxies."""
    cloud_server.reset()
    for name in _PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in cloud_server.environment.items():
        monkeypatch.setenv(name, value)
    return cloud_server


@pytest.fixture
def clients(cloud: SimulatedAlibabaCloud, cloud_clients: CloudClients) -> CloudClients:
    """Clients of the simulated cloud that wait for nothing before they try again."""
    return cloud_clients


@pytest.fixture(scope="session")
def few_types_server() -> Iterator[SimulatedAlibabaCloud]:
    """A simulated cloud that sells few types; tests of the whole provider take `few_types_cloud`."""
    from karpenter_simulated_alibabacloud.testing import few_types

    with few_types() as made:
        yield made


@pytest.fixture
def few_types_cloud(few_types_server: SimulatedAlibabaCloud) -> Iterator[SimulatedAlibabaCloud]:
    """The simulated cloud with few types as it is in the beginning; the environment leads to it."""
    from karpenter_simulated_alibabacloud.testing import simulated_environment

    few_types_server.reset()
    with simulated_environment(few_types_server):
        yield few_types_server
