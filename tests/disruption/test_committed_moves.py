"""A node is replaced by one that an unused commitment pays for, where that certainly costs less."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.commitments import Commitment
from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    CPU,
    INSTANCE_TYPE,
    NODES,
    ON_DEMAND,
    SPOT,
    ZONE,
)
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.api.quantities import parse_amount
from karpenter_core.disruption.method import DisruptionOptions
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.state.provisioning_input import ProblemSettings
from tests.disruption.small_clusters import (
    bought,
    box,
    cluster,
    found,
    gone,
    kind,
    messages,
    only,
    pool,
    runs,
    single,
    validated,
)
from tests.properties import with_examples

CHEAP, DEAR, HUGE = kind("cheap", 4, 0.20), kind("dear", 4, 0.24), kind("huge", 8, 0.52)
MARKET = (CHEAP, DEAR, HUGE)


def committed(amount, *, price=0.01, types=("dear", "huge"), resource=CPU, discount=0.0):
    """Options with a commitment for instances of some types."""
    row = Commitment(
        name="savings",
        requirements=(RequirementSpec(key=INSTANCE_TYPE, operator="In", values=tuple(types)),),
        resource=resource,
        amount=parse_amount(resource, amount),
        price=price,
        discount=discount,
    )
    return DisruptionOptions(problem_settings=ProblemSettings(commitments=(row,)))


def one(of=CHEAP, *, cpu="3", **options):
    return cluster(box("a", of, **options), runs("web", "a", cpu=cpu), market=MARKET)


@pytest.mark.parametrize(
    "pods",
    [
        [runs("a-1", "a", node_selector={"example.com/rack": "7"})],
        [runs("a-1", "a", node_selector={ZONE: "zone-a"}), runs("a-2", "a", cpu="9")],
    ],
    ids=["no node has its label", "no node has its size"],
)
def test_a_node_that_no_new_node_replaces_is_judged_beside_a_commitment(pods):
    """Its question fails for nobody."""
    options = committed("4", types=("dear",))
    outcome = single(cluster(box("a", HUGE), *pods, market=MARKET), options=options)
    assert (outcome.set_aside, bought(outcome)) == ((), [])


def test_a_node_is_replaced_by_one_of_an_unused_commitment():
    """The claim allows only what the commitment covers, on demand, at its price."""
    builder, options = one(), committed("4")
    outcome = single(builder, options=options)

    assert (gone(outcome), bought(outcome)) == (["a"], [["dear"]])
    (planned,) = only(outcome).replacements
    assert Requirements(planned.requirements).get(CAPACITY_TYPE).values == {ON_DEMAND}
    assert planned.cheapest.price_per_hour == pytest.approx(0.04)
    assert planned.cheapest.list_price_per_hour == pytest.approx(0.24)
    assert planned.cheapest.price_source == 'commitment "savings"'
    assert only(outcome).evidence.savings_per_hour == pytest.approx(0.16)
    verdict = validated(builder, outcome, options=options)
    assert [claim.instance_types for claim in verdict.command.replacements] == [("dear",)]
    assert validated(builder, outcome).rejection is not None, "the commitment is used up meanwhile"


@pytest.mark.parametrize(
    ("amount", "price", "types"),
    [
        ("12", 0.01, [["dear", "huge"]]),  # eight cores at 0.08 are cheaper as well
        ("4", 0.05, []),  # four cores at 0.20 save nothing
        ("1", 0.01, [["dear"]]),  # 0.19, a quarter of it covered
        ("500m", 0.01, []),  # 0.215
        ("0", 0.0, []),
    ],
)
def test_every_type_that_it_may_become_costs_less_with_what_is_left(amount, price, types):
    outcome = single(one(), options=committed(amount, price=price))
    assert bought(outcome) == types
    if not types:
        assert messages(outcome) == ["Can't replace with a cheaper node"]


def test_spot_nodes_are_replaced_too_where_that_is_cheaper():
    spot = kind("spotty", 4, 0.20, spot=0.05)
    builder = cluster(
        box("a", spot, capacity_type=SPOT), runs("web", "a", cpu="3"), market=(spot, DEAR)
    )
    assert bought(single(builder, options=committed("4", price=0.02))) == []
    assert bought(single(builder, options=committed("4", price=0.01))) == [["dear"]]


def test_no_node_moves_onto_what_others_use_or_are_about_to_use():
    """Nodes that are removed use it until they are gone, claims what they may become."""
    options = committed("4", resource=NODES, price=0.0, types=("dear",))
    used = [box(f"used-{n}", DEAR) for n in range(4)]
    pods = [runs(f"used-{n}", f"used-{n}", cpu="3") for n in range(4)]
    full = cluster(box("a", CHEAP), runs("web", "a", cpu="3"), used, pods, market=MARKET)
    assert gone(single(full, options=options)) == []
    free = cluster(box("a", CHEAP), runs("web", "a", cpu="3"), used[:3], pods[:3], market=MARKET)
    assert gone(single(free, options=options)) == ["a"]


@pytest.mark.parametrize("price", [None, float("nan")], ids=["unlisted type", "unknown price"])
def test_a_node_without_a_price_uses_no_commitment(price):
    """The rest of a commitment is computed without it, and others move."""
    odd = kind("odd", 4, 0.30 if price is None else price)
    market = MARKET if price is None else (*MARKET, odd)
    beside = [box("z", odd), runs("other", "z", cpu="3")]
    builder = cluster(box("a", CHEAP), runs("web", "a", cpu="3"), *beside, market=market)
    outcome = single(builder, options=committed("4", types=("dear",)))
    assert (gone(outcome), bought(outcome), outcome.set_aside) == (["a"], [["dear"]], ())


def test_min_values_and_savings_floors_hold():
    several = [RequirementSpec(key=INSTANCE_TYPE, operator="Exists", min_values=2)]
    strict = cluster(
        pool(requirements=several), box("a", CHEAP), runs("web", "a", cpu="3"), market=MARKET
    )
    assert bought(single(strict, options=committed("4"))) == []
    assert bought(single(strict, options=committed("8"))) == [["dear", "huge"]]


def bill(sold, options):
    """Return the cost beyond the commitment, which covers what saves most first, as clouds do."""
    (row,) = options.problem_settings.commitments
    total, left = 0.0, row.amount
    for of, capacity_type in sorted(sold, key=lambda each: -_saved(row, *each)):
        part = 0.0
        if capacity_type == ON_DEMAND and of.name in row.requirements[0].values:
            units = of_units(row, of)
            part = min(units, left) / units
            left -= min(units, left)
        total += _price(of, capacity_type) * (1 - part)
    return total


def _saved(row, of, capacity_type):
    units, price = of_units(row, of), _price(of, capacity_type)
    return (price - row.covered_price(units, price)) / units


def of_units(row, of):
    return 1 if row.resource == NODES else of.capacity[CPU]


def _price(of, capacity_type):
    return next(each.price.amount for each in of.offerings if each.capacity_type == capacity_type)


@with_examples(150)
@given(seed=st.integers(0, 2**32))
def test_every_replacement_lowers_the_bill_whichever_type_is_launched(seed):
    """So no node is replaced in turns, and consolidation comes to an end."""
    random = Random(seed)
    market = [
        kind(
            f"{family}-{cores}",
            cores,
            round(random.uniform(0.03, 0.08) * cores, 3),
            spot=round(random.uniform(0.01, 0.05) * cores, 3) if random.random() < 0.5 else None,
        )
        for family in "ab"
        for cores in (2, 4, 8)
    ]
    names = [of.name for of in market]
    options = committed(
        random.choice(("2", "5", "8", "16")),
        price=random.choice((0.0, 0.01, 0.04)),
        types=random.sample(names, random.randint(1, 4)),
        resource=random.choice((CPU, CPU, NODES)),
    )
    by_name = {of.name: of for of in market}
    boxes, pods, made = {}, {}, 0
    for number in range(random.randint(1, 5)):
        of = random.choice(market)
        capacity_type = random.choice([each.capacity_type for each in of.offerings])
        boxes[f"n{number}"] = (of, capacity_type)
        pods[f"p{number}"] = (f"n{number}", random.choice(("900m", "1500m", "1900m")))
    before = bill(boxes.values(), options)
    for _ in range(40):
        builder = cluster(
            [box(name, of, capacity_type=ct) for name, (of, ct) in boxes.items()],
            [runs(name, on, cpu=cpu) for name, (on, cpu) in pods.items()],
            market=market,
        )
        outcome = found(builder, options=options)
        if not outcome.commands:
            return
        for command in outcome.commands:
            for planned in command.replacements:
                made += 1
                of = by_name[random.choice(planned.instance_types)]
                allowed = Requirements(planned.requirements).get(CAPACITY_TYPE)
                capacity_type = random.choice(
                    [
                        each.capacity_type
                        for each in of.offerings
                        if allowed.has(each.capacity_type)
                        # A claim that allows spot gets it where the type has it.
                        and (each.capacity_type == SPOT or not allowed.has(SPOT))
                    ]
                    or [ON_DEMAND]
                )
                boxes[f"m{made}"] = (of, capacity_type)
                for moved in planned.pods:
                    pods[moved.name] = (f"m{made}", pods[moved.name][1])
            for place, moved in command.moves.items():
                for one_pod in moved:
                    pods[one_pod.name] = (place, pods[one_pod.name][1])
            for item in command.candidates:
                del boxes[item.name]
        after = bill(boxes.values(), options)
        # A node that is not needed goes, though what is committed may be free for another only.
        is_deletion = not any(command.replacements for command in outcome.commands)
        assert after <= before + 1e-9 if is_deletion else after < before - 1e-9
        before = after
    raise AssertionError("consolidation does not come to an end")
