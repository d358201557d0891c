"""Checks whether a pod could have been placed alone."""

from __future__ import annotations

from itertools import product

from tests.verifier.contents import variant_faults
from tests.verifier.places import pool_labels, type_variants


def hosts_alone(problem, pod):
    """Return a variant that could be launched for this pod alone; None when there is none.

    Only for problems without limits, minValues, and constraints that depend on other pods.
    """
    for pool in problem.pools:
        for variant in pool_variants(problem, pool, pod):
            return pool.name, variant.instance_type.name, variant.labels
    return None


def pool_variants(problem, pool, pod):
    """Yield the variants of a pool that would take this pod alone, constraints on others aside.

    Custom labels that a pool leaves open (other than by listing values) are not tried.
    """
    fixed = pool_labels(pool)
    custom = [
        [(r.key, value) for value in r.values]
        for r in pool.spec.template.spec.requirements
        if r.operator == "In" and r.key.startswith("example.com/") and r.key not in fixed
    ]
    for instance_type in problem.catalogues[pool.name].instance_types:
        for choice in product(*custom):
            for variant in type_variants(instance_type, {**fixed, **dict(choice)}, {}):
                if not any(variant_faults(problem, pool, (pod,), variant)):
                    yield variant
