"""Small clusters to consolidate: a market of simple types, nodes with pods, and a pass over them.

Prices are round: `FOUR` has four cores and costs 0.4 an hour. Nothing is kept by the system, so a
node holds exactly what its name says.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from karpenter_core.api.durations import NillableDuration
from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.api.nodeclaim import INITIALIZED
from karpenter_core.api.nodepool import Budget, Disruption, NodePool
from karpenter_core.disruption.drift import DriftMethod
from karpenter_core.disruption.method import DisruptionOptions, DisruptionPass
from karpenter_core.disruption.multi_node import MultiNodeConsolidation
from karpenter_core.disruption.plan import METHODS, plan
from karpenter_core.disruption.single_node import SingleNodeConsolidation
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.testing.builders import (
    EPOCH,
    catalogue,
    instance_type,
    node_pool,
    offering,
    pod,
)
from karpenter_core.testing.state_builders import node, node_claim, ready_node_pool, synced_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.scheduling.instance_types import InstanceType

NOW = EPOCH + timedelta(minutes=10)
ZONES = ("zone-a", "zone-b", "zone-c")
GATE = DisruptionOptions(spot_to_spot=True)


def kind(name, cores, price=None, *, spot=None, zones=("zone-a",), offerings=None, **options):
    """An instance type; on demand for `price`, and as spot where that has a price too."""
    price = 0.1 * cores if price is None else price
    if offerings is None:
        prices = {ON_DEMAND: price, **({} if spot is None else {SPOT: spot})}
        offerings = [offering(z, ct, p) for z in zones for ct, p in prices.items()]
    return instance_type(
        name,
        cpu=str(cores),
        memory=f"{4 * cores}Gi",
        overhead={},
        offerings=offerings,
        **options,
    )


ONE, TWO, FOUR, EIGHT, SIXTEEN = (
    kind(name, cores)
    for name, cores in (("one", 1), ("two", 2), ("four", 4), ("eight", 8), ("sixteen", 16))
)
MARKET = (ONE, TWO, FOUR, EIGHT, SIXTEEN)


def pool(
    name="default",
    *,
    nodes="100%",
    budgets: Sequence[Budget] = (),
    window="0s",
    policy="WhenEmptyOrUnderutilized",
    notes=None,
    **options,
):
    """A NodePool that consolidates at once; `notes` are its annotations."""
    made = ready_node_pool(
        node_pool(
            name,
            disruption=Disruption(
                budgets=tuple(budgets) or (Budget(nodes=nodes),),
                consolidate_after=NillableDuration(window),
                consolidation_policy=policy,
            ),
            **options,
        )
    )
    metadata = made.metadata.model_copy(update={"annotations": dict(notes or {})})
    return made.model_copy(update={"metadata": metadata})


def box(
    name,
    of: InstanceType = FOUR,
    *,
    zone="zone-a",
    capacity_type=ON_DEMAND,
    settled=True,
    stage=INITIALIZED,
    ready="True",
    without=(),
    annotations=None,
    requirements=(),
    **options,
):
    """A node of this type with its claim; `without` are labels that it lacks."""
    capacity = {"cpu": f"{of.capacity['cpu']}m", "memory": str(of.capacity["memory"])}
    claim = node_claim(
        name,
        stage=stage,
        consolidatable=settled and stage == INITIALIZED,
        instance_type=of.name,
        zone=zone,
        capacity_type=capacity_type,
        capacity=capacity,
        annotations=annotations,
        requirements=requirements,
        **options,
    )
    its_node = node(
        name, claim=claim, stage=stage, ready=ready, capacity=capacity, annotations=annotations
    )
    if without:
        labels = {key: value for key, value in its_node.labels.items() if key not in without}
        its_node = msgspec.structs.replace(its_node, labels=labels)
    return its_node, claim


def runs(name, on, *, cpu="1", annotations=None, start=EPOCH, deleted=None, ready=None, **options):
    """A pod on a node; it asks for a core."""
    built = pod(name, node_name=on, phase="Running", cpu=cpu, memory="100Mi", **options)
    shape = msgspec.structs.replace(built.shape, annotations=dict(annotations or {}))
    return msgspec.structs.replace(
        built, shape=shape, start_time=start, deletion_timestamp=deleted, ready=ready
    )


def cluster(*objects, market=MARKET, **options):
    """A synced state of these objects; every pool sells all of the market."""
    flat = list(_flat(objects))
    pools = [item for item in flat if isinstance(item, NodePool)]
    if not pools:
        flat.insert(0, pool())
        pools = [flat[0]]
    catalogues = {item.name: catalogue(*market) for item in pools}
    return synced_state(*flat, **{"catalogues": catalogues, **options})


def _flat(items):
    for item in items:
        if isinstance(item, (tuple, list)):
            yield from _flat(item)
        else:
            yield item


def pass_over(builder, *, now=NOW, **options):
    """Return one pass over a cluster."""
    return DisruptionPass(
        snapshot=builder.snapshot(), now=now, command_id="command-1", cause="test", **options
    )


def found(builder, *methods, **options):
    """Return the plan of a pass, with these methods or all."""
    return plan(pass_over(builder, **options), methods=methods or METHODS)


def single(builder, **options):
    return found(builder, SingleNodeConsolidation(), **options)


def multi(builder, **options):
    return found(builder, MultiNodeConsolidation(), **options)


def drift(builder, **options):
    return found(builder, DriftMethod(), **options)


def only(outcome):
    """The one command of a plan; None without."""
    assert len(outcome.commands) < 2
    return outcome.commands[0] if outcome.commands else None


def gone(outcome):
    """The names of the claims that would go, in the command's order."""
    return [item.name for command in outcome.commands for item in command.candidates]


def bought(outcome):
    """The types that each replacement may become, cheapest first."""
    return [
        list(planned.instance_types)
        for command in outcome.commands
        for planned in command.replacements
    ]


def said(outcome, reason="Unconsolidatable"):
    """Return events as `(kind, name, message)`, without repetitions."""
    return sorted(
        {
            (n.regarding.kind, n.regarding.name, n.message)
            for n in outcome.notices
            if n.reason == reason
        }
    )


def messages(outcome, reason="Unconsolidatable"):
    return sorted({message for _, _, message in said(outcome, reason)})


def report(outcome, method=None):
    """Return the report of a method: the last one, unless named."""
    reports = [r for r in outcome.reports if method is None or r.method.name == method]
    return reports[-1]


def validated(builder, outcome, **options):
    """The verdict on the one command of a plan, after the wait."""
    return run_steps(outcome.method.validate_steps(only(outcome), pass_over(builder, **options)))
