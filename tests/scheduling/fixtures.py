"""The catalogues and helpers that the acceptance cases are told in."""

from __future__ import annotations

from karpenter_core.scheduling.requirements import Requirement
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    instance_type,
    node_pool,
    offering,
    problem,
    requirement_spec,
)
from tests.verifier import violations

ZONES = ("z1", "z2", "z3")
SIZE, SPECIAL, INTEGER = "size", "special", "integer"
FAKE_WELL_KNOWN = frozenset({SIZE, SPECIAL, INTEGER})
GIB = 2**30


def fake_type(
    name,
    cpu=4,
    memory_gib=4,
    pods=5,
    *,
    arch="amd64",
    systems=("linux", "windows", "darwin"),
    offerings=None,
    price=None,
    **resources,
):
    """A type of the reference's fake provider: linear prices, five offerings."""
    extended = {key.replace("__", ".com/"): str(value) for key, value in resources.items()}
    if price is None:
        price = round(0.1 * cpu + 0.1 * memory_gib * GIB / 1e9 + len(extended), 9)
    if offerings is None:
        offerings = [offering(zone, "spot", price) for zone in ZONES[:2]]
        offerings += [offering(zone, "on-demand", price) for zone in ZONES]
    large = cpu > 4 and memory_gib > 8
    made = instance_type(
        name,
        cpu=str(cpu),
        memory=f"{memory_gib}Gi",
        pods=str(pods),
        resources=extended,
        arch=arch,
        operating_systems=systems,
        offerings=offerings,
        labels={SIZE: "large" if large else "small", INTEGER: str(cpu)},
    )
    special = Requirement.of(SPECIAL, *(("In", ("optional",)) if large else ("DoesNotExist",)))
    return type(made)(
        name=made.name,
        requirements=made.requirements.add(special),
        offerings=made.offerings,
        capacity=made.capacity,
        overhead=made.overhead,
    )


DEFAULT_TYPES = (
    fake_type("default-instance-type"),
    fake_type("small-instance-type", 2, 2),
    fake_type("gpu-vendor-instance-type", fake__vendor_a=2),
    fake_type("gpu-vendor-b-instance-type", fake__vendor_b=2),
    fake_type("arm-instance-type", 16, 128, arch="arm64", systems=("linux", "ios")),
    fake_type("single-pod-instance-type", pods=1),
)


def assorted_types():
    """Every mix of size, zone, capacity type, system and architecture, one offering each."""
    return tuple(
        fake_type(
            f"{cpu}-cpu-{memory}-mem-{arch}-{system}-{zone}-{kind}",
            cpu,
            memory,
            pods=110,
            arch=arch,
            systems=(system,),
            offerings=[offering(zone, kind, round(0.1 * cpu + 0.1 * memory * GIB / 1e9, 9))],
        )
        for cpu in (1, 2, 4, 8, 16, 32, 64)
        for memory in (1, 2, 4, 8, 16, 32, 64, 128)
        for zone in ZONES
        for kind in ("spot", "on-demand")
        for system in ("linux", "windows")
        for arch in ("amd64", "arm64")
    )


def default_pool(name="default", **arguments):
    """The pool of the acceptance cases: every capacity type, 2000 CPUs."""
    requirements = [
        requirement_spec("karpenter.sh/capacity-type", "In", "spot", "on-demand", "reserved"),
        *arguments.pop("requirements", ()),
    ]
    return node_pool(name, requirements=requirements, **{"limits": {"cpu": "2000"}, **arguments})


class Outcome:
    """A solved problem, asked as the cases ask."""

    def __init__(self, asked, plan):
        self.plan = plan
        self.problem = asked

    @property
    def nodes(self):
        return len(self.plan.claims)

    @property
    def types(self):
        """The type each claim would launch."""
        return [claim.cheapest.instance_type for claim in self.plan.claims]

    def claim(self, name="pod"):
        return next(c for c in self.plan.claims if any(p.name == name for p in c.pods))

    def scheduled(self, name="pod"):
        placed = {pod.name for claim in self.plan.claims for pod in claim.pods}
        placed |= {pod.name for pods in self.plan.existing.values() for pod in pods}
        return name in placed

    def reason(self, name="pod"):
        uid = next(pod.uid for pod in self.problem.pods if pod.name == name)
        return self.plan.unschedulable[uid]


def provision(*pods, pools=None, types=DEFAULT_TYPES, options=None, **more):
    """Solve a case, and have the verifier look at it."""
    asked = problem(
        pods,
        pools=[default_pool()] if pools is None else pools,
        catalogue=catalogue(*types),
        well_known=FAKE_WELL_KNOWN,
        **more,
    )
    plan = solve(asked, options)
    strict = options is None or options.min_values == "Strict"
    assert violations(asked, plan, strict_min_values=strict) == []
    return Outcome(asked, plan)
