"""Starts the real control plane that the tests of a process share: the first that needs it, once.

A start and the CRDs of Karpenter take 2 CPU seconds, and an idle control plane 2 % of a core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.local_clusters import RealLocalCluster

__all__ = ["NEWEST", "PROCESS_CORES"]

NEWEST: Final = "1.36"
"""The minor that is tested when no other is asked for."""
PROCESS_CORES: Final = 1
"""Cores for each process of a control plane, of which several run at once: with two, the same stories take a
sixth more CPU time, and an idle control plane a third more."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of the real control plane's version."""
    parser.addoption("--kubernetes", default=NEWEST, help="minor of the real control plane")


@pytest.fixture(scope="session")
def kubernetes(request: pytest.FixtureRequest) -> str:
    """The minor of the real control plane."""
    return str(request.config.getoption("--kubernetes"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_local_cluster(kubernetes: str) -> AsyncIterator[RealLocalCluster]:
    """A real control plane."""
    from tests.support.controlplane import BinariesMissingError
    from tests.support.local_clusters import RealLocalCluster
    from tests.support.release import account_of

    # The service accounts of charts: nothing may be refused to them.
    audited = (account_of("karpenter"), account_of("karpenter-e2e", "karpenter-e2e"))
    try:
        local_cluster = RealLocalCluster(kubernetes, audited_users=audited, cores=PROCESS_CORES)
    except BinariesMissingError as error:
        pytest.fail(str(error))
    async with local_cluster:
        yield local_cluster
