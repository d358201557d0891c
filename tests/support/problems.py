"""Draws random, deliberately hard scheduling problems from a seed.

`seeded_problem(7)` is a whole problem: pools with uneven catalogues, weights, taints and limits,
existing nodes with odd labels and pods on them, DaemonSets, volumes, and pods of a few shapes with
every kind of constraint. What it may have is switched by `ProblemFeature`. The strategy `problems` of
`tests.support.strategies` draws from the same code, and shrinks.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.api.labels import HOSTNAME, ZONE
from karpenter_core.api.records import VolumeView
from karpenter_core.scheduling.problem import PodVolumes, SchedulingProblem
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.testing.builders import EPOCH, pod
from tests.support.problem_pods import random_shapes
from tests.support.problem_pools import (
    DRIVER,
    RESERVATION,
    SHARED_CLAIMS,
    random_catalogue,
    random_closed_node,
    random_daemon,
    random_node,
    random_pool,
)
from tests.support.random_choices import (
    CORES,
    FAMILY,
    NAMESPACES,
    ProblemFeature,
    RandomChoices,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from karpenter_core.api.records import PodShape, PodView

__all__ = ["ALL_FEATURES", "ProblemFeature", "random_problem", "seeded_problem"]

ALL_FEATURES: Final = frozenset(ProblemFeature)

_LARGE_EVERY: Final = 50
_LARGE_PODS: Final = 400


def seeded_problem(
    seed: int, features: Collection[ProblemFeature] = ALL_FEATURES
) -> SchedulingProblem:
    """Make the problem of a seed: mostly up to forty pods, now and then some hundreds."""
    random = Random(f"problem {seed}")
    if random.randrange(_LARGE_EVERY) == 0:
        return random_problem(random, features, most_pods=_LARGE_PODS)
    return random_problem(random, features)


def random_problem(
    random: Random, features: Collection[ProblemFeature] = ALL_FEATURES, *, most_pods: int = 40
) -> SchedulingProblem:
    """Draw a problem of about so many pending pods at most."""
    choices = RandomChoices(random, features)
    pools = tuple(random_pool(choices, f"pool-{n}") for n in range(_count_of_pools(choices)))
    shapes = random_shapes(choices, choices.number(0, 8))
    volumes: dict[str, PodVolumes] = {}
    pods: list[PodView] = []
    for number, shape in enumerate(shapes):
        count = min(choices.number(1, max(most_pods // 4, 1)), most_pods - len(pods))
        members = _deployment(choices, f"pod-{number}", shape, count)
        if choices.chance(25, ProblemFeature.VOLUMES):
            members = _with_volumes(choices, members, volumes)
        pods += members
    nodes = [random_node(choices, n, pools) for n in range(choices.one((0, 1, 2, 4)))]
    if shapes and choices.chance(30, ProblemFeature.CLOSED):
        closed, leaving = random_closed_node(choices, shapes)
        nodes.append(closed)
        pods += leaving
    daemons = choices.one((0, 1, 2)) if choices.has(ProblemFeature.DAEMONS) else 0
    return SchedulingProblem(
        pods=tuple(pods),
        pools=pools,
        catalogues={pool.name: random_catalogue(choices, pool.name) for pool in pools},
        nodes=tuple(nodes),
        daemons=tuple(random_daemon(choices, number) for number in range(daemons)),
        pool_usage={
            pool.name: choices.one(({}, {}, {"cpu": 5000, "nodes": 1, "memory": 2**33}))
            for pool in pools
        },
        well_known=frozenset({FAMILY, CORES, RESERVATION}),
        volumes=volumes,
        namespaces=NAMESPACES,
    )


def _count_of_pools(choices: RandomChoices) -> int:
    return 0 if choices.chance(4) else choices.one((1, 1, 2, 3))


def _deployment(
    choices: RandomChoices, name: str, shape: PodShape, count: int
) -> tuple[PodView, ...]:
    """Make the pods of one shape, in no order of age."""
    return tuple(
        pod(
            f"{name}-{member}",
            shape=shape,
            created=EPOCH + timedelta(minutes=choices.number(0, 3)),
        )
        for member in range(count)
    )


# -- volumes ---------------------------------------------------------------------------------------


def _with_volumes(
    choices: RandomChoices, members: Sequence[PodView], volumes: dict[str, PodVolumes]
) -> tuple[PodView, ...]:
    """Give the pods of a deployment a volume: one claim that they share, or one each."""
    if not members:
        return ()
    namespace = members[0].shape.namespace
    shared = choices.one(SHARED_CLAIMS) if choices.chance(50) else ""
    alternatives = _alternatives(choices)
    view = VolumeView(name="data", claim_name=shared.rpartition("/")[2], ephemeral=not shared)
    shape = msgspec.structs.replace(members[0].shape, volumes=(view,))
    for member in members:
        claim = shared.rpartition("/")[2] or f"{member.name}-{view.name}"
        volumes[member.uid] = PodVolumes(
            alternatives=alternatives, attached={DRIVER: frozenset({f"{namespace}/{claim}"})}
        )
    return tuple(msgspec.structs.replace(member, shape=shape) for member in members)


def _alternatives(choices: RandomChoices) -> tuple[Requirements, ...]:
    """Draw where a volume is: anywhere, in a zone, in one of two, on a node, nowhere."""
    match choices.number(0, 9):
        case 4 | 5:
            return (Requirements.from_labels({ZONE: "zone-a"}),)
        case 6:
            return tuple(Requirements.from_labels({ZONE: zone}) for zone in ("zone-b", "zone-a"))
        case 7:
            return (Requirements.from_labels({ZONE: "nowhere"}), Requirements())
        case 8:
            return (Requirements.from_labels({HOSTNAME: "node-0"}),)
        case 9:
            return tuple(
                Requirements.from_labels(labels) for labels in ({ZONE: "nowhere"}, {ZONE: "zone-c"})
            )
        case _:
            return ()
