"""The tables that are shipped, and the scripts that read them out of other projects' sources."""

from __future__ import annotations

from karpenter_provider_aws.data import NetworkLimits, network_limits, shipped_on_demand_prices
from providers.aws.tests.catalogue.recorded_region import raw_types
from providers.aws.tools.make_network_limits import limits_of
from providers.aws.tools.make_static_prices import prices_of

LIMITS = """
// This file was generated at 2026-09-02T16:44:35Z
var Limits = map[string]*VPCLimits{
\t"m5.large": {
\t\tInterface:               3,
\t\tIPv4PerInterface:        10,
\t\tIsTrunkingCompatible:    true,
\t\tBranchInterface:         9,
\t\tNetworkCards: []NetworkCard{
\t\t\t{
\t\t\t\tMaximumNetworkInterfaces: 3,
\t\t\t},
\t\t},
\t},
\t"t3.large": {
\t\tInterface:               3,
\t\tIPv4PerInterface:        12,
\t\tIsTrunkingCompatible:    false,
\t\tBranchInterface:         4,
\t},
}
"""
PRICES = """
// generated at 2026-07-20T13:44:30Z for us-east-1
var Prices = map[string]map[ec2types.InstanceType]float64{
\t// us-east-1
\t"us-east-1": {
\t\t// c5 family
\t\t"c5.large": 0.085000, "c5.metal": 4.080000,
\t},
}
"""


def test_types_without_a_trunk_have_no_branch_interfaces():
    assert limits_of(LIMITS) == {
        "as_of": "2026-09-02",
        "types": {"m5.large": [10, 9], "t3.large": [12, 0]},
    }


def test_prices_are_read_by_region():
    assert prices_of(PRICES) == {
        "us-east-1": {"as_of": "2026-07-20", "prices": {"c5.large": 0.085, "c5.metal": 4.08}}
    }


def test_shipped_addresses_agree_with_ec2():
    """Both give the same number of addresses per interface."""
    addresses_by_type = {
        name: item["NetworkInfo"]["Ipv4AddressesPerInterface"] for name, item in raw_types().items()
    }
    shipped = {name: network_limits()[name].ipv4_per_interface for name in addresses_by_type.keys() & (
        network_limits().keys())}  # fmt: skip

    assert len(shipped) > 1300
    assert {
        name: count for name, count in shipped.items() if addresses_by_type[name] != count
    } == {}
    assert network_limits()["m5.large"] == NetworkLimits(10, 9)


def test_nearly_every_type_of_the_region_has_a_shipped_price():
    unpriced = raw_types().keys() - shipped_on_demand_prices("us-east-1").keys()

    assert len(unpriced) < 0.05 * len(raw_types())
