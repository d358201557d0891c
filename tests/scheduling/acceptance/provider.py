"""The fake provider: launches the cheapest type that holds what a claim asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from karpenter_core.api.labels import CAPACITY_TYPE, NODE_POOL, WELL_KNOWN, ZONE
from karpenter_core.api.quantities import parse_resources
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.resources import fits
from tests.scheduling.acceptance.catalogues import FAKE_WELL_KNOWN, RESERVATION_ID

ANY_NODE = WELL_KNOWN | FAKE_WELL_KNOWN


@dataclass(frozen=True, kw_only=True)
class FakeInstance:
    """An instance, as providers describe one."""

    provider_id: str
    instance_type: str
    zone: str
    capacity_type: str
    capacity: dict
    allocatable: dict
    labels: dict
    image_id: str = ""
    annotations: dict = None


class FakeProvider:
    """Sells the types it was given, per pool, and remembers what it was asked for."""

    def __init__(self):
        self.types = {}
        """Pool name to the types that it may launch."""
        self.calls = []
        """Every claim that `create` was called with."""

    def create(self, claim):
        """Launch an instance for a claim, or fail the test: the plan promised that there is one."""
        self.calls.append(claim)
        asked = Requirements.from_specs(claim.spec.requirements)
        requests = parse_resources(claim.spec.resources.requests)
        choice = [
            item
            for item in self.types[claim.metadata.labels[NODE_POOL]]
            if asked.compatible(item.requirements, allow_undefined=ANY_NODE)
            and _buyable(item, asked)
            and fits(requests, item.allocatable())
        ]
        assert choice, f"nothing can be launched for {asked}, {requests}"
        chosen = min(choice, key=lambda item: min(o.price.amount for o in _buyable(item, asked)))
        offers = _buyable(chosen, asked)
        reserved = [offer for offer in offers if offer.capacity_type == "reserved"]
        bought = (reserved or offers)[0]
        if reserved:
            self._take(bought.requirements.single_value(RESERVATION_ID))
        return FakeInstance(
            provider_id=f"fake://{len(self.calls):04}",
            instance_type=chosen.name,
            zone=bought.requirements.single_value(ZONE),
            capacity_type=bought.requirements.single_value(CAPACITY_TYPE),
            capacity={name: amount for name, amount in chosen.capacity.items() if amount},
            allocatable={name: amount for name, amount in chosen.allocatable().items() if amount},
            labels={
                key: value
                for key, value in {**_labels(chosen, asked), **_labels(bought, asked)}.items()
                if bought.requirements.get(key).has(value)
            },
            annotations={},
        )

    def _take(self, reservation_id):
        """Use up one instance of a reservation, wherever it is on offer."""
        self.types = {
            pool: tuple(
                replace(item, offerings=tuple(_less(o, reservation_id) for o in item.offerings))
                for item in types
            )
            for pool, types in self.types.items()
        }


def _less(offer, reservation_id):
    if offer.requirements.single_value(RESERVATION_ID) != reservation_id:
        return offer
    left = offer.reservation_capacity - 1
    return replace(offer, reservation_capacity=left, available=left > 0)


def _buyable(item, asked):
    return [
        offer
        for offer in item.offerings
        if offer.available and asked.compatible(offer.requirements, allow_undefined=ANY_NODE)
    ]


def _labels(described, asked):
    """Give every label that has values one of them, one that the claim allows if there is any."""
    labels = {}
    for key, requirement in described.requirements.items():
        if requirement.complement or not requirement.values:
            continue
        allowed = [value for value in requirement.values if asked.get(key).has(value)]
        labels[key] = min(allowed or requirement.values)
    return labels
