"""The table of shipped prices is written from a cloud's answers."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.errors import AuthError

if TYPE_CHECKING:
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud

TOOL = Path(__file__).parents[1] / "tools" / "make_shipped_prices.py"


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = spec_from_file_location("make_shipped_prices", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_region_is_read_whole(tool: Any, cloud: SimulatedAlibabaCloud, clients: CloudClients):
    cloud.prices.set_on_demand("ecs.g7.large", 0.5)
    cloud.prices.set_on_demand("ecs.g7.xlarge", 0)
    entry = tool.prices_of(clients, sleep=lambda _: None)

    assert entry["currency"] == "CNY"
    assert entry["prices"]["ecs.g7.large"] == 0.5
    assert "ecs.g7.xlarge" not in entry["prices"]
    assert len(entry["prices"]) == len(cloud.catalogue.types) - 1


def test_an_account_without_price_permission_writes_nothing(
    tool: Any, cloud: SimulatedAlibabaCloud, clients: CloudClients
):
    with cloud.deny("DescribePrice"), pytest.raises(AuthError, match="ecs:DescribePrice"):
        tool.prices_of(clients, sleep=lambda _: None)


def test_other_regions_stay_as_they_are(tool: Any):
    table = {"rates": {"vcpu": 1}, "regions": {"b": 1, "c": 2}}

    assert tool.with_region(table, "a", 3) == {**table, "regions": {"a": 3, "b": 1, "c": 2}}
    assert tool.with_region(table, "b", 3) == {**table, "regions": {"b": 3, "c": 2}}
