"""The simulated Azure for all tests of the provider: one server for the session, a fresh cloud for each
test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_simulated_azure.cloud import SimulatedAzure

_FOREIGN = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"),
    *("AZURE_CLIENT_SECRET", "AZURE_USERNAME", "AZURE_TOKEN_CREDENTIALS", "ARM_CLOUD"),
)


@pytest.fixture(scope="session")
def cloud_server() -> Iterator[SimulatedAzure]:
    """A simulated Azure that serves all along; tests take `cloud`."""
    from karpenter_simulated_azure.cloud import SimulatedAzure

    with SimulatedAzure() as made:
        yield made


@pytest.fixture
def cloud(cloud_server: SimulatedAzure, monkeypatch: pytest.MonkeyPatch) -> SimulatedAzure:
    """The simulated cloud as it is in the beginning; the environment leads to it, past proxies."""
    cloud_server.reset()
    for name in _FOREIGN:
        monkeypatch.delenv(name, raising=False)
    for name, value in cloud_server.environment.items():
        monkeypatch.setenv(name, value)
    return cloud_server


@pytest.fixture(scope="session")
def few_sizes_server() -> Iterator[SimulatedAzure]:
    """A simulated cloud that sells few sizes; tests of the whole provider take `few_sizes_cloud`."""
    from karpenter_simulated_azure.testing import few_sizes

    with few_sizes() as made:
        yield made


@pytest.fixture
def few_sizes_cloud(few_sizes_server: SimulatedAzure) -> Iterator[SimulatedAzure]:
    """The simulated cloud with few sizes as it is in the beginning; the environment leads to it."""
    from karpenter_simulated_azure.testing import simulated_environment

    few_sizes_server.reset()
    with simulated_environment(few_sizes_server):
        yield few_sizes_server
