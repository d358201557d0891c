"""Finds commitments without use or savings for `karpenter doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import ALIASES, WELL_KNOWN
from karpenter_core.api.quantities import format_amount
from karpenter_core.cli.catalogues import open_providers
from karpenter_core.cli.cluster_listing import connected
from karpenter_core.cli.doctor.cluster_reading import read_cluster
from karpenter_core.errors import KarpenterError
from karpenter_core.operator.clock import SystemClock
from karpenter_core.provider.contract import Finding, Severity
from karpenter_core.scheduling.commitments import SoldNode, committed_units, is_covered
from karpenter_core.state.commitments import commitment_balances

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.host.manager import Plugins
    from karpenter_core.scheduling.problem import CommitmentBalance
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["check_commitments", "commitment_findings"]


async def check_commitments(plugins: Plugins, settings: Settings) -> list[Finding]:
    """Check the commitments of the settings against the instance types of the cluster's NodePools."""
    opening = open_providers(plugins, settings=settings, instance_types_file=None)
    try:
        async with opening as providers:
            groups = frozenset(group for group, _ in providers.node_class_models())
            labels = providers.label_classes()
            async with connected(settings, SystemClock(), node_class_groups=groups) as apis:
                cluster = await read_cluster(providers, settings, apis)
    except KarpenterError as error:
        message = f"the commitments cannot be compared with instance types: {error}"
        return [Finding(severity=Severity.ERROR, message=message, remedy="correct the cause")]
    balances = commitment_balances(
        cluster.snapshot,
        settings.commitments,
        {settings.currency: 1.0, **settings.exchange_rates},
        well_known=WELL_KNOWN | labels.well_known,
        aliases={**ALIASES, **labels.aliases},
    )
    return commitment_findings(cluster.snapshot, balances)


def commitment_findings(snapshot: Snapshot, balances: Sequence[CommitmentBalance]) -> list[Finding]:
    """Return what is wrong with each commitment, or what existing nodes use of it."""
    return [_finding(balance, list(_covered(snapshot, balance))) for balance in balances]


def _finding(balance: CommitmentBalance, covered: Sequence[SoldNode]) -> Finding:
    commitment = balance.commitment
    name = f'commitment "{commitment.name}"'
    if not covered:
        return Finding(
            severity=Severity.WARNING,
            message=f"{name} covers no on-demand instance type that a NodePool may launch",
            remedy="correct its requirements or currency, or let a NodePool launch such types",
        )
    if not any(_saves(balance, sold) for sold in covered):
        return Finding(
            severity=Severity.WARNING,
            message=f"{name} saves nothing: its price is not below the list price of any type",
            remedy="correct its price: it is for one core, one GiB or one node, per hour",
        )
    resource = commitment.resource
    used, amount = (format_amount(resource, each) for each in (balance.used, commitment.amount))
    message = f"{name} covers {amount} of {resource}, of which nodes use {used}"
    return Finding(severity=Severity.OK, message=message)


def _covered(snapshot: Snapshot, balance: CommitmentBalance) -> Iterator[SoldNode]:
    """Yield the offerings of all NodePools that a commitment covers."""
    for catalogue in snapshot.catalogues.values():
        for item in catalogue.instance_types:
            for offering in item.offerings:
                sold = SoldNode(item, offering)
                if is_covered(balance, sold):
                    yield sold


def _saves(balance: CommitmentBalance, sold: SoldNode) -> bool:
    listed = sold.offering.price.amount
    return balance.commitment.covered_price(committed_units(balance, sold), listed) < listed
