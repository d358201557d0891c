"""The simulated AWS for all tests of the provider: one server for the session, a fresh cloud for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from karpenter_provider_aws.sdk import ClientLimits, CloudClients
from karpenter_simulated_aws.testing import attempts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_provider_aws.sdk import SharedClients
    from karpenter_simulated_aws.cloud import SimulatedAws


@pytest.fixture(scope="session")
def aws_server() -> Iterator[SimulatedAws]:
    """A simulated AWS that serves all along; tests take `aws`."""
    from karpenter_simulated_aws.cloud import SimulatedAws

    with SimulatedAws() as cloud:
        yield cloud


@pytest.fixture(scope="session")
def aws_shared() -> SharedClients:
    """Clients of boto3 for the session, as making one takes longer than a test; tests take `clients`."""
    return {}


@pytest.fixture(scope="session")
def aws_shared_once() -> SharedClients:
    """Further ones; tests take `once`."""
    return {}


@pytest.fixture
def aws(aws_server: SimulatedAws, monkeypatch: pytest.MonkeyPatch) -> SimulatedAws:
    """The simulated AWS as it is in the beginning; boto3's environment leads to it."""
    aws_server.reset()
    for name, value in aws_server.environment.items():
        monkeypatch.setenv(name, value)
    return aws_server


@pytest.fixture(scope="session")
def few_types_server() -> Iterator[SimulatedAws]:
    """A simulated AWS that sells few types; tests of the whole provider take `few_types_aws`."""
    from karpenter_simulated_aws.testing import few_types

    with few_types() as cloud:
        yield cloud


@pytest.fixture
def few_types_aws(few_types_server: SimulatedAws) -> Iterator[SimulatedAws]:
    """The simulated AWS with few types as it is in the beginning; boto3 is led to it."""
    from karpenter_simulated_aws.testing import simulated_environment

    few_types_server.reset()
    with simulated_environment(few_types_server):
        yield few_types_server


@pytest.fixture(scope="session")
def few_types_shared() -> SharedClients:
    """The clients of all providers that tests start on the simulated AWS with few types."""
    return {}


@pytest.fixture
def few_types_clients(few_types_aws: SimulatedAws) -> Iterator[CloudClients]:
    """Clients of the simulated AWS with few types."""
    made = CloudClients(
        region=few_types_aws.account.region,
        limits=ClientLimits(read_seconds=10),
        every_operation=True,
    )
    yield made
    made.close()


@pytest.fixture
def clients(aws: SimulatedAws, aws_shared: SharedClients) -> CloudClients:
    """Clients of the simulated AWS; each is made when a test first uses it, in its environment."""
    limits = ClientLimits(read_seconds=10, retries=attempts(3))
    return CloudClients(
        region=aws.account.region, limits=limits, shared=aws_shared, every_operation=True
    )


@pytest.fixture
def once(aws: SimulatedAws, aws_shared_once: SharedClients) -> CloudClients:
    """Clients that make one attempt of a call."""
    limits = ClientLimits(read_seconds=10, retries=attempts(1))
    return CloudClients(
        region=aws.account.region, limits=limits, shared=aws_shared_once, every_operation=True
    )
