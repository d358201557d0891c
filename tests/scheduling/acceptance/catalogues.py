"""Catalogue and pools of the acceptance cases' fake provider.

A type is linear in price, comes as five offerings (spot in two zones, on demand in three) and
keeps 100m of CPU and 10Mi of memory for itself.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from karpenter_core.api.labels import CAPACITY_TYPE, ZONE
from karpenter_core.api.prices import DEFAULT_CURRENCY, Price
from karpenter_core.api.quantities import parse_resources
from karpenter_core.scheduling.instance_types import Offering
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.testing.builders import (
    instance_type,
    node_pool,
    offering,
    requirement_spec,
)

ZONES = ("z1", "z2", "z3")
SIZE, SPECIAL, INTEGER = "size", "special", "integer"
NUMERICAL = "karpenter/numerical-value"
RESERVATION_ID = "fake.com/reservation-id"
FAKE_WELL_KNOWN = frozenset({SIZE, SPECIAL, INTEGER, RESERVATION_ID})
"""Labels that the fake provider says every one of its nodes has."""
VENDOR_A, VENDOR_B = "fake.com/vendor-a", "fake.com/vendor-b"


def fake_price(cpu, memory_bytes, devices=0):
    """Ten cents a core and decimal gigabyte, a dollar for each kind of device."""
    return round(0.1 * float(cpu) + 0.1 * memory_bytes / 1e9 + devices, 9)


def fake_type(
    name,
    cpu="4",
    memory="4Gi",
    pods="5",
    *,
    arch="amd64",
    systems=("linux", "windows", "darwin"),
    offerings=None,
    price=None,
    resources=None,
    labels=None,
    overhead=None,
):
    """Make a type of the fake provider; amounts as in manifests."""
    amounts = parse_resources({"cpu": cpu, "memory": memory})
    if price is None:
        price = fake_price(amounts["cpu"] / 1000, amounts["memory"], len(resources or {}))
    if offerings is None:
        offerings = [offering(zone, "spot", price) for zone in ZONES[:2]]
        offerings += [offering(zone, "on-demand", price) for zone in ZONES]
    large = amounts["cpu"] > 4000 and amounts["memory"] > 8 * 2**30
    made = instance_type(
        name,
        cpu=cpu,
        memory=memory,
        pods=pods,
        resources=resources,
        arch=arch,
        operating_systems=systems,
        offerings=offerings,
        labels={
            SIZE: "large" if large else "small",
            INTEGER: str(amounts["cpu"] // 1000),
            **(labels or {}),
        },
        overhead=overhead,
    )
    special = Requirement.of(SPECIAL, *(("In", ("optional",)) if large else ("DoesNotExist",)))
    reservations = sorted({o.requirements.single_value(RESERVATION_ID) for o in offerings} - {""})
    ids = Requirement.of(RESERVATION_ID, "In", reservations)
    return replace(made, requirements=made.requirements.add(special, ids))


def reserved_offering(zone, reservation_id, count, price):
    """Make an offering of a reservation with `count` remaining instances."""
    labels = {ZONE: zone, CAPACITY_TYPE: "reserved", RESERVATION_ID: reservation_id}
    return Offering(
        requirements=Requirements.from_labels(labels),
        price=Price(price, DEFAULT_CURRENCY),
        reservation_capacity=count,
    )


def requiring(instance_type, *requirements):
    """Return a type with requirements of its own, such as a label with two values."""
    return replace(
        instance_type, requirements=instance_type.requirements.merge(Requirements(requirements))
    )


DEFAULT_TYPES = (
    fake_type("default-instance-type"),
    fake_type("small-instance-type", "2", "2Gi"),
    fake_type("gpu-vendor-instance-type", resources={VENDOR_A: "2"}),
    fake_type("gpu-vendor-b-instance-type", resources={VENDOR_B: "2"}),
    fake_type(
        "arm-instance-type", "16", "128Gi", arch="arm64",
        systems=("linux", "windows", "darwin", "ios"),
    ),
    fake_type("single-pod-instance-type", pods="1"),
)  # fmt: skip


@cache
def assorted_types():
    """Every mix of size, zone, capacity type, system and architecture, one offering each."""
    return tuple(
        fake_type(
            f"{cpu}-cpu-{memory}-mem-{arch}-{system}-{zone}-{kind}",
            str(cpu),
            f"{memory}Gi",
            arch=arch,
            systems=(system,),
            offerings=[offering(zone, kind, fake_price(cpu, memory * 2**30))],
        )
        for cpu in (1, 2, 4, 8, 16, 32, 64)
        for memory in (1, 2, 4, 8, 16, 32, 64, 128)
        for zone in ZONES
        for kind in ("spot", "on-demand")
        for system in ("linux", "windows")
        for arch in ("amd64", "arm64")
    )


@cache
def incremental_types(count):
    """`fake-it-0` …: one core, two GiB and ten pods more from each to the next."""
    return tuple(
        fake_type(f"fake-it-{n}", str(n + 1), f"{2 * (n + 1)}Gi", str(10 * (n + 1)))
        for n in range(count)
    )


def default_pool(name="default", **arguments):
    """Make the pool of the cases: every capacity type, 2000 CPUs."""
    requirements = [
        requirement_spec(CAPACITY_TYPE, "In", "spot", "on-demand", "reserved"),
        *arguments.pop("requirements", ()),
    ]
    return node_pool(name, requirements=requirements, **{"limits": {"cpu": "2000"}, **arguments})


def minimum(count, key, operator="Exists", *values):
    """Make a requirement that asks for a number of different values."""
    return requirement_spec(key, operator, *values, min_values=count)
