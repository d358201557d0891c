"""The other direction: could a pod have been placed alone?"""

from __future__ import annotations

from itertools import product

from tests.verifier.contents import machine_faults
from tests.verifier.places import machines, pool_labels


def hosts_alone(problem, pod):
    """Return a machine that could be launched for this pod alone; None when there is none.

    Only for problems without limits, minValues, and constraints that look at other pods.
    """
    for pool in problem.pools:
        for machine in machines_for(problem, pool, pod):
            return pool.name, machine.instance_type.name, machine.labels
    return None


def machines_for(problem, pool, pod):
    """Yield the machines of a pool that would take this pod alone, constraints on others aside.

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
            for machine in machines(instance_type, {**fixed, **dict(choice)}, {}):
                if not any(machine_faults(problem, pool, (pod,), machine)):
                    yield machine
