"""Selector terms that say nothing, which the CRD refuses and an older object may have."""

from __future__ import annotations

from karpenter_provider_aws.api.nodeclass import (
    AmiTerm,
    CapacityReservationTerm,
    SecurityGroupTerm,
    SubnetTerm,
)
from karpenter_provider_aws.discovery.images import image_queries
from karpenter_provider_aws.discovery.reservations import reservation_queries
from karpenter_provider_aws.discovery.security_groups import security_group_queries
from karpenter_provider_aws.discovery.subnets import subnet_queries


def test_an_empty_selector_term_sends_no_query():
    """A query without a filter would find everything that the account has."""
    assert image_queries([AmiTerm()], {}) == ((), ())
    assert reservation_queries([CapacityReservationTerm()]) == ()
    assert security_group_queries([SecurityGroupTerm()]) == ()
    assert subnet_queries([SubnetTerm()]) == ()


def test_an_owner_alone_selects_neither_images_nor_reservations():
    """It narrows what other fields select."""
    assert image_queries([AmiTerm(owner="self")], {}) == ((), ())
    assert reservation_queries([CapacityReservationTerm(owner_id="123456789012")]) == ()
