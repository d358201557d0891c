"""Tests the grammar of VM size names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_provider_azure.catalogue.size_names import read_size_name
from karpenter_provider_azure.data import shipped_prices


@pytest.mark.parametrize(
    ("name", "family", "series", "version", "accelerator"),
    [
        ("Standard_D2_v3", "D", "D_v3", "3", ""),  # case 22
        ("Standard_A2_v2", "A", "A_v2", "2", ""),  # case 22
        ("Standard_D4s", "D", "Ds", "1", ""),  # case 22
        ("Standard_D4pls_v6", "D", "Dpls_v6", "6", ""),  # case 23
        ("Standard_NC24ads_A100_v4", "N", "NCads_v4", "4", "A100"),  # case 24
        ("Standard_NC6s_v3", "N", "NCs_v3", "3", "V100"),  # case 25
        ("Standard_ND40rs_v2", "N", "NDrs_v2", "2", "V100"),
        ("Standard_ND96asr_v4", "N", "NDasr_v4", "4", "A100"),
        ("Standard_NV12s_v3", "N", "NVs_v3", "3", "M60"),
        ("Standard_NV4as_v4", "N", "NVas_v4", "4", "MI25"),
        ("Standard_NC24lds_xl_RTXPRO6000BSE_v6", "N", "NClds_v6", "6", "RTXPRO6000BSE"),
        ("Standard_ND128isr_NDR_GB200_v6", "N", "NDisr_v6", "6", "GB200"),
        ("Standard_ND96is_noIB_H100_v5", "N", "NDis_v5", "5", "H100"),
        ("Standard_ND96isr_MI300X_v5", "N", "NDisr_v5", "5", "MI300X"),
        ("Standard_M416s_8_v2", "M", "Ms_v2", "2", ""),
        ("Standard_DS3_v2", "D", "DS_v2", "2", ""),
        ("Standard_NV12_Promo", "N", "NV", "1", ""),
        ("Standard_DC4ads_cc_v5", "D", "DCads_v5", "5", ""),
        ("Basic_A4", "A", "A", "1", ""),
    ],
)
def test_a_name_is_taken_apart(
    name: str, family: str, series: str, version: str, accelerator: str
) -> None:
    parts = read_size_name(name)

    assert (family, series, version, accelerator) == (
        parts.family,
        parts.series,
        parts.version,
        parts.accelerator,
    )


@pytest.mark.parametrize(
    ("name", "constrained"),
    [
        ("Standard_M8-2ms", 2),
        ("Standard_M8ms", None),
        ("Standard_M96ds-24_1_v3", 24),
        ("Standard_E32-8as_v4", 8),
    ],
)
def test_constrained_vcpus_are_parsed_before_and_after_the_features(
    name: str, constrained: int | None
) -> None:
    assert read_size_name(name).constrained_cpus == constrained


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Standard_DC8s_v3", True),
        ("Standard_EC8as_v5", True),
        ("Standard_NC8as_T4_v3", False),
        ("Standard_D8s_v3", False),
    ],
)
def test_the_families_dc_and_ec_are_confidential(name: str, expected: bool) -> None:
    assert read_size_name(name).is_confidential is expected


@pytest.mark.parametrize("name", ["", "Standard_", "Standard_Ds_v3", "D2_v3", "Dsv3_Type3"])
def test_a_name_outside_of_the_convention_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="naming convention"):
        read_size_name(name)


def test_every_size_of_the_shipped_price_list_is_read() -> None:
    for name in shipped_prices("eastus").prices:
        assert read_size_name(name).cpus >= 0


@given(
    family=st.sampled_from("ABDEFGHLMN"),
    subfamily=st.sampled_from(["", "C", "D", "S"]),
    cpus=st.integers(1, 999),
    features=st.text("abdilmprst", max_size=4),
    version=st.one_of(st.none(), st.integers(1, 9)),
)
def test_series_and_version_follow_from_the_parts(
    family: str, subfamily: str, cpus: int, features: str, version: int | None
) -> None:
    tail = "" if version is None else f"_v{version}"

    parts = read_size_name(f"Standard_{family}{subfamily}{cpus}{features}{tail}")

    assert parts.cpus == cpus
    assert parts.series == f"{family}{subfamily}{features}{tail}"
    assert parts.version == str(version or 1)
