"""Compares the cost of our plans with that of Karpenter's scheduler, on many small clusters.

    .venv/bin/python tests/peer/compare_costs.py --clusters 200 --seed 0

Compared are clusters of which both leave equally many pods of each size. A claim costs what its cheapest
offering does: both sides are priced by this rule, from their claims' instance types and requirements.
The reference breaks ties by chance: ours is compared with the cheapest and with the median of its runs.
Printed are the clusters that are dearer than the median, and the sums.
"""

# ruff: noqa: T201 - a program that reports

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.peer.draw import random_cluster
from tests.peer.intended_differences import size_of, specs_of
from tests.peer.our_plans import plan
from tests.peer.reference import Reference

RUNS = 5
EQUAL = 1 + 1e-9


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--without", default="", help="features to leave out, by comma")
    given = parser.parse_args()
    rows = []
    with Reference() as reference:
        for seed in range(given.seed, given.seed + given.clusters):
            row = compared(reference, *random_cluster(seed, given.without.split(",")))
            if row is None:
                continue
            ours, best, middle = row
            rows.append(row)
            if ours > middle * EQUAL:
                print(
                    f"{seed}: ours {ours:.4f}, theirs {best:.4f} to median {middle:.4f}", flush=True
                )
    if not rows:
        print("no cluster could be compared")
        return
    sums = [sum(column) for column in zip(*rows, strict=True)]
    beaten = [sum(ours > row[side] * EQUAL for ours, *row in rows) for side in (0, 1)]
    print(
        f"{len(rows)} clusters with new nodes; ours {sums[0]:.2f}, theirs {sums[1]:.2f} (best of {RUNS}) "
        f"and {sums[2]:.2f} (median); dearer than the best in {beaten[0]}, than the median in {beaten[1]}"
    )


def compared(reference, cluster, types):
    """Return our cost, and the least and median cost of the reference; None: not comparable."""
    sizes = {pod: size_of(spec) for pod, spec in specs_of(cluster).items()}

    def left(document):
        return sorted(sizes[pod] for pod in document["unschedulable"] or ())

    ours = plan(cluster, types)
    runs = [run for run in reference.ask(cluster, types, runs=RUNS) if "error" not in run]
    costs = [cost_of(run, types) for run in runs if left(run) == left(ours)]
    if not costs or not (ours["nodeClaims"] or any(costs)):
        return None
    return cost_of(ours, types), min(costs), statistics.median(costs)


def cost_of(document, types):
    """Return the sum of the prices of the cheapest offering of each claim."""
    by_name = {each["name"]: each for each in types}
    return sum(_price(claim, by_name) for claim in document["nodeClaims"] or ())


def _price(claim, types):
    asked = [requirement_of(each) for each in claim["requirements"]]
    return min(
        (
            offering["Price"]
            for name in claim["instanceTypes"]
            for offering in types[name]["offerings"]
            if offering["Available"] and all(_allows(each, offering) for each in asked)
        ),
        default=float("inf"),
    )


def requirement_of(written):
    """Return key, operator and values of a requirement, which the reference writes as text."""
    if not isinstance(written, str):
        return written["key"], written["operator"], tuple(written.get("values") or ())
    key, operator, *rest = written.split(" ", 2)
    values = "".join(rest).partition("[")[2].partition("]")[0]
    return key, operator, tuple(values.split())


def _allows(requirement, offering):
    key, operator, wanted = requirement
    for each in offering["Requirements"]:
        if each["key"] != key:
            continue
        if operator == "In" and not set(each["values"]) & set(wanted):
            return False
        if operator == "NotIn" and not set(each["values"]) - set(wanted):
            return False
    return True


if __name__ == "__main__":
    main()
