"""Turns filled columns into a plan: right-sizes and prices every claim.

A claim lists every row that still holds its pods, cheapest first, so its price is that of the
first. Claims of one signature with the same amounts are computed once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import fsum
from typing import TYPE_CHECKING, Final

import numpy as np

from karpenter_core.api.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE
from karpenter_core.scheduling.compiled.pool_templates import SIMULATION_LABELS
from karpenter_core.scheduling.compiled.volumes import is_attach_resource
from karpenter_core.scheduling.problem import CheapestOffering, MinValuesPolicy, PlannedNodeClaim
from karpenter_core.scheduling.requirements import Requirement, is_restricted_label

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.arrays import Amounts, Columns, Mask
    from karpenter_core.scheduling.compiled.claim_signature import ClaimSignature
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.compiled.reservations import Reservation
    from karpenter_core.scheduling.placement.engine import PlacementEngine

__all__ = ["FinishedPlan", "SizedClaim", "emit_steps", "finish_steps", "place_steps"]

_CLAIMS_PER_STEP: Final = 64
_COLUMNS_PER_STEP: Final = 1000
_NEVER_LISTED: Final = frozenset({HOSTNAME, *SIMULATION_LABELS})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizedClaim:
    """The `rows` of claims of one signature with the same amounts, cheapest first."""

    claim: ClaimSignature
    used: Amounts
    """resources: what the pods on each claim ask for together."""
    rows: Columns
    names: tuple[str, ...]
    price_per_hour: float


@dataclass(slots=True, kw_only=True, eq=False)
class FinishedPlan:
    """A plan that is right-sized and priced, but not written down yet."""

    engine: PlacementEngine
    sized_claims: dict[int, SizedClaim] = field(default_factory=dict[int, SizedClaim])
    """By column."""
    dropped: set[int] = field(default_factory=set[int])
    """Columns whose list of types, cut to its maximum, misses `minValues`."""
    left: dict[int, int]
    """The number of pods of each class that have no node."""
    cost_per_hour: float = 0.0
    """All claims, in the currencies as they are; for comparing plans of one problem."""

    @property
    def score(self) -> tuple[int, float, int]:
        """Sort key of plans: fewest pods left, then cheapest, then fewest nodes."""
        fee = self.engine.compiled.options.node_fee_per_hour
        cost = round(self.cost_per_hour + fee * len(self.sized_claims), 9)
        return (sum(self.left.values()), cost, len(self.sized_claims))

    def is_no_worse_than(self, other: FinishedPlan) -> bool:
        """Whether it leaves fewer pods, or the same ones and costs no more (fees aside).

        Among as many pods, which of them wait for a limit to be raised is not a question of price.
        """
        waiting, waiting_there = sum(self.left.values()), sum(other.left.values())
        if waiting != waiting_there:
            return waiting < waiting_there
        if self.left != other.left:
            return False
        return round(self.cost_per_hour, 9) <= round(other.cost_per_hour, 9)

    def dropped_pods(self) -> dict[int, int]:
        """Return the pods on columns that were dropped, by class."""
        pods: Counter[int] = Counter()
        for index, columns, counts in self.engine.nodes.log if self.dropped else ():
            for column, count in zip(columns, counts, strict=True):
                if column in self.dropped:
                    pods[index] += count
        return dict(pods)

    def reported_cost(self) -> float:
        """Return the cost per hour of the claims whose price is in the reporting currency."""
        prices = (
            sized_claim.price_per_hour
            for sized_claim in self.sized_claims.values()
            if sized_claim.claim.pool.catalogue.is_priced
        )
        return round(fsum(prices), 9)


def finish_steps(engine: PlacementEngine) -> Generator[int, None, FinishedPlan]:
    """Right-size and price the planned claims of a filled table."""
    nodes, signatures = engine.nodes, engine.compiled.signatures
    left = Counter(engine.left)
    left.update(engine.profile.left_out)
    plan = FinishedPlan(engine=engine, left=dict(left))
    sized_claims: dict[tuple[int, bytes], SizedClaim | None] = {}
    is_filled: Mask = np.any(nodes.used[:, nodes.existing :], axis=0)
    filled = np.flatnonzero(is_filled) + nodes.existing
    for column in filled.tolist():
        signature, used = int(nodes.signature[column]), nodes.used[:, column]
        key = (signature, used.tobytes())
        if key not in sized_claims:
            sized_claims[key] = _sized_claim(
                signatures.claim(signature), used.copy(), engine.compiled
            )
            if len(sized_claims) % _CLAIMS_PER_STEP == 0:
                yield _CLAIMS_PER_STEP // 16
        if column % _COLUMNS_PER_STEP == 0:
            yield 1
        sized_claim = sized_claims[key]
        if sized_claim is None:
            plan.dropped.add(column)
        else:
            plan.sized_claims[column] = sized_claim
            plan.cost_per_hour += sized_claim.price_per_hour
    for index, count in plan.dropped_pods().items():
        plan.left[index] = plan.left.get(index, 0) + count
    return plan


def _sized_claim(
    claim: ClaimSignature, used: Amounts, compiled: CompiledProblem
) -> SizedClaim | None:
    """Right-size; None when the list cut to its maximum misses `minValues`."""
    options = compiled.options
    catalogue, most = claim.pool.catalogue, options.max_instance_types
    fitting = claim.rows[claim.fitting(used)]
    if catalogue.has_twins:
        every: list[str] = catalogue.name_array[fitting].tolist()
        names = list(dict.fromkeys(every))[:most]
        listed = set(names)
        rows = fitting[[name in listed for name in every]]
    else:
        rows = fitting[:most]
        names = catalogue.name_array[rows].tolist()
    is_strict = options.min_values is MinValuesPolicy.STRICT
    if is_strict and claim.has_min_values and len(rows) < len(fitting):
        is_listed = np.zeros(catalogue.size, dtype=np.bool_)
        is_listed[rows] = True
        if claim.missing_min_values(is_listed[claim.rows]):
            return None
    return SizedClaim(
        claim=claim,
        used=used,
        rows=rows,
        names=tuple(names),
        price_per_hour=float(claim.prices_and_groups[0][rows[0]]),
    )


@dataclass(slots=True, kw_only=True, eq=False)
class PlanPlacement:
    """The placement of pods: pods by column, and the pods left over by class."""

    pods: dict[int, list[PodView]] = field(default_factory=dict[int, "list[PodView]"])
    left: dict[int, list[PodView]] = field(default_factory=dict[int, "list[PodView]"])
    sequence: list[str] = field(default_factory=list[str])
    """UIDs of the placed pods, in the order of placing."""


def place_steps(plan: FinishedPlan) -> Generator[int, None, PlanPlacement]:
    """Give the places of each class to its members, oldest first, in the order of placing."""
    placement = PlanPlacement()
    classes = plan.engine.compiled.classes
    next_member = [0] * len(classes)
    done = 0
    for index, columns, counts in plan.engine.nodes.log:
        members = classes[index].members
        for column, count in zip(columns, counts, strict=True):
            start = next_member[index]
            next_member[index] = end = start + count
            if column in plan.dropped:
                placement.left.setdefault(index, []).extend(members[start:end])
            else:
                placement.pods.setdefault(column, []).extend(members[start:end])
                placement.sequence.extend(pod.uid for pod in members[start:end])
            done += 1
            if done % _COLUMNS_PER_STEP == 0:
                yield 1
    for index, pod_class in enumerate(classes):
        if next_member[index] < len(pod_class.members) and index not in plan.engine.unreached:
            placement.left.setdefault(index, []).extend(pod_class.members[next_member[index] :])
    return placement


def emit_steps(
    plan: FinishedPlan, placement: PlanPlacement
) -> Generator[int, None, tuple[PlannedNodeClaim, ...]]:
    """Write the claims down, in the order in which they were opened."""
    claims: list[PlannedNodeClaim] = []
    templates: dict[int, _ClaimTemplate] = {}
    for number, (column, sized_claim) in enumerate(plan.sized_claims.items(), start=1):
        template = templates.get(id(sized_claim))
        if template is None:
            template = templates[id(sized_claim)] = _claim_template(
                sized_claim, plan.engine.compiled
            )
        claims.append(
            PlannedNodeClaim(
                pool=sized_claim.claim.pool.name,
                pods=tuple(placement.pods[column]),
                requirements=template.requirements,
                instance_types=sized_claim.names,
                requests=template.requests,
                cheapest=template.cheapest,
                labels=template.labels,
                capacity_max=template.capacity_max,
                min_values_relaxed=sized_claim.claim.min_values_relaxed,
            )
        )
        if number % _CLAIMS_PER_STEP == 0:
            yield _CLAIMS_PER_STEP // 16
    return tuple(claims)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ClaimTemplate:
    """The parts that claims with the same rows have in common."""

    requirements: tuple[Requirement, ...]
    requests: dict[str, int]
    cheapest: CheapestOffering
    labels: dict[str, str]
    capacity_max: dict[str, int]


def _claim_template(sized_claim: SizedClaim, compiled: CompiledProblem) -> _ClaimTemplate:
    claim, pool, catalogue = (
        sized_claim.claim,
        sized_claim.claim.pool,
        sized_claim.claim.pool.catalogue,
    )
    rows = sized_claim.rows
    group = catalogue.groups[int(claim.prices_and_groups[1][rows[0]])]
    requirements = (
        claim.requirements.without(_NEVER_LISTED)
        .add(*_reservation_labels(claim.held or ()))
        .replace(
            Requirement(
                key=INSTANCE_TYPE,
                complement=False,
                values=frozenset(sized_claim.names),
                min_values=claim.requirements.get(INSTANCE_TYPE).min_values,
            )
        )
        .replace(
            Requirement(
                key=CAPACITY_TYPE,
                complement=False,
                values=_offered_capacity_types(sized_claim),
                # Of one value there cannot be several; upstream drops them too.
                min_values=None if claim.held else claim.requirements.get(CAPACITY_TYPE).min_values,
            )
        )
    )
    requests = {
        name: amount
        for number, name in enumerate(compiled.resources)
        if not is_attach_resource(name)
        and (amount := int(sized_claim.used[number]) + int(pool.daemon_overhead(name)[rows].min()))
    }
    list_price, price_source = next(
        (
            (offering.list_price, offering.price_source)
            for offering in catalogue.instance_types[int(rows[0])].offerings
            if offering.list_price is not None and offering.requirements == group.requirements
        ),
        (None, ""),
    )
    rates = compiled.options.exchange_rates
    return _ClaimTemplate(
        requirements=tuple(requirements.get(key) for key in sorted(requirements)),
        requests=requests,
        cheapest=CheapestOffering(
            instance_type=sized_claim.names[0],
            zone=group.zone,
            capacity_type=group.capacity_type,
            price_per_hour=sized_claim.price_per_hour,
            list_price_per_hour=None
            if list_price is None
            else list_price.amount * rates.get(list_price.currency, 1.0),
            price_source=price_source,
        ),
        labels=_labels(claim),
        capacity_max={
            name: int(pool.counted_against_limits(name)[rows].max()) for name in catalogue.resources
        },
    )


def _offered_capacity_types(sized_claim: SizedClaim) -> frozenset[str]:
    """Return the capacity types under which some listed type can really be bought."""
    claim, catalogue = sized_claim.claim, sized_claim.claim.pool.catalogue
    rows = sized_claim.rows
    return frozenset(
        catalogue.groups[number].capacity_type
        for number in np.flatnonzero(claim.allowed_groups)
        if np.isfinite(catalogue.prices[number][rows]).any()
    )


def _reservation_labels(held: Iterable[Reservation]) -> tuple[Requirement, ...]:
    """Return what keeps a claim to the reservations that it holds."""
    labels = [dict[str, str](reservation) for reservation in held]
    keys = sorted({key for one in labels for key in one})
    return tuple(
        Requirement.of(key, "In", sorted({one[key] for one in labels}))
        for key in keys
        if all(key in one for one in labels)
    )


def _labels(claim: ClaimSignature) -> dict[str, str]:
    """Return the template's labels and a value for every custom label that the pool requires.

    What only pods speak of they want absent, or not to have some value: no label at all does.
    """
    labels = dict(claim.pool.labels)
    for key in sorted(claim.pool.requirements):
        if key in claim.pool.well_known or is_restricted_label(key):
            continue
        value = claim.requirements.get(key).any_value()
        if value:
            labels[key] = value
    return labels
