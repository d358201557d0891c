"""Compares `karpenter plan --offline` with Karpenter's scheduler.

    .venv/bin/python tests/peer/compare.py --clusters 1000 --seed 0

Each cluster is written to files, read and solved by the functions of the command with both
packings, and solved several times by the reference (needs `go`; ties are broken by chance there).
Reported is every pod that only one of both leaves pending. A difference is made small and kept as
`<seed>.json` with `--keep FOLDER`; `--seed N --clusters 1 --show` prints it.

Exit code 1: there are differences that `intended_differences.py` does not know, or no reference to ask.
"""

# ruff: noqa: T201 - a program that reports

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.peer.draw import random_cluster
from tests.peer.intended_differences import THEY_LEAVE, WE_LEAVE, explanation, size_of, specs_of
from tests.peer.our_plans import plan, plans
from tests.peer.reference import Reference
from tests.peer.shrink import shrunk

RUNS = 4
"""Number of runs of the reference at a time."""
MOST_RUNS = 24
"""Number of runs after which the reference differs: its choices are random."""


def main():
    arguments = _arguments()
    try:
        reference = Reference()
    except RuntimeError as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 1
    counts, started = Counter(), time.monotonic()
    with reference:
        for done, seed in enumerate(range(arguments.seed, arguments.seed + arguments.clusters)):
            cluster, types = random_cluster(seed, arguments.without.split(","))
            kind = _judge(reference, cluster, types, counts)
            if done % 250 == 249:
                print(f"  {done + 1} in {time.monotonic() - started:.0f} s: {dict(counts)}")
            if kind:
                print(f"{seed}: {kind}", flush=True)
                if arguments.keep or arguments.show:
                    _keep(reference, seed, cluster, types, kind, arguments)
    print(dict(counts), f"{time.monotonic() - started:.0f} s")
    return 1 if counts["differ"] else 0


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--without", default="", help="features to leave out, by comma")
    parser.add_argument("--keep", type=Path, help="folder for differences, made small")
    parser.add_argument("--show", action="store_true", help="print differences, made small")
    return parser.parse_args()


def _judge(reference, cluster, types, counts):
    """Return what kind of difference there is; empty when there is none to worry about."""
    counts["clusters"] += 1
    counts["pods"] += len(cluster["pods"])
    kind, theirs = difference(reference, cluster, types)
    if not kind:
        counts["agree"] += 1
        return ""
    if kind in {WE_LEAVE, THEY_LEAVE}:
        why = explanation(
            cluster, types, theirs, kind, lambda *changed: difference(reference, *changed)
        )
        if why:
            counts[why] += 1
            return ""
    counts["differ"] += 1
    return kind


def difference(reference, cluster, types):
    """Say which side leaves a pod that the other places whatever its luck, and the other's plans.

    Among pods of one size it does not matter which one waits.
    """
    try:
        documents = plans(cluster, types, "first-fit", "value")
    except Exception as error:
        return f"error: {type(error).__name__}: {error}", ()
    ours, value = (each["unschedulable"] for each in documents)
    if len(value) > len(ours) or (len(value) == len(ours) and set(value) != set(ours)):
        return "value packing leaves what first-fit places", ()
    if not all(_is_explained(why, cluster) for why in ours.values()):
        return "no constraint is named", ()
    sizes = {pod: size_of(spec) for pod, spec in specs_of(cluster).items()}
    theirs, verdicts = [], []
    while len(theirs) < MOST_RUNS:
        answers = reference.ask(cluster, types, runs=RUNS)
        theirs += answers
        errors = [run["error"] for run in answers if "error" in run]
        if errors:
            return f"reference: {errors[0].partition(chr(10))[0]}", ()
        found = [frozenset(run["unschedulable"] or ()) for run in answers]
        verdicts += found
        if any(_are_alike(ours, verdict, sizes) for verdict in found):
            return "", theirs
    if set(ours) - frozenset.union(*verdicts):
        return WE_LEAVE, theirs
    if frozenset.intersection(*verdicts) - set(ours):
        return THEY_LEAVE, theirs
    return "", theirs


def _are_alike(ours, theirs, sizes):
    """Whether as many pods of each size are left."""
    return sorted(sizes[pod] for pod in ours) == sorted(sizes[pod] for pod in theirs)


def _is_explained(why, cluster):
    """Return whether each pool has a constraint; without pools a message suffices."""
    if not cluster["nodePools"] or not why["pools"]:
        return bool(why["message"])
    return all(pool["constraint"] and pool["detail"] for pool in why["pools"].values())


def _keep(reference, seed, cluster, types, kind, arguments):
    def shows(smaller, fewer):
        try:
            return difference(reference, smaller, fewer)[0] == kind
        except (KeyError, TypeError, ValueError):
            return False

    cluster, types = shrunk(cluster, types, shows)
    cluster = {key: value for key, value in cluster.items() if value}
    ours = {} if kind.startswith("error") else plan(cluster, types, "first-fit")
    theirs = reference.ask(cluster, types, runs=1)[0]
    text = json.dumps(
        {"kind": kind, "cluster": cluster, "types": types, "ours": ours, "theirs": theirs}, indent=1
    )
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        (arguments.keep / f"{seed}.json").write_text(text)
    if arguments.show:
        print(text)


if __name__ == "__main__":
    sys.exit(main())
