"""Clusters whose answer the reference has given, kept so that no `go` is needed to check ours.

    .venv/bin/python tests/peer/golden.py --clusters 150 --seed 100000

Writes `data/clusters.jsonl`, one JSON object in each line: `cluster`, `types`, and the names of the
pods that every run of the reference leaves (`unschedulable`). Kept are clusters on which chance has
no say and that are not larger than they need to be.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.peer.draw import random_cluster
from tests.peer.ours import plan
from tests.peer.reference import Reference

FILE = Path(__file__).parent / "data" / "clusters.jsonl"
RUNS = 12
LARGEST = 7_500
"""Characters of one line."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", type=int, default=150, help="how many (default 150)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    arguments = parser.parse_args()
    lines = []
    seed = arguments.seed
    with Reference() as reference:
        while len(lines) < arguments.clusters:
            line = _line(reference, *random_cluster(seed))
            if line:
                lines.append(line)
            seed += 1
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"{len(lines)} clusters of {seed - arguments.seed}: {FILE.stat().st_size} B\n")
    return 0


def _line(reference, cluster, types):
    """Return the line of a cluster; empty when it is not one to keep."""
    cluster = _lean(cluster)
    shown = {"cluster": cluster, "types": types}
    if len(json.dumps(shown, separators=(",", ":"))) > LARGEST:
        return ""
    runs = reference.ask(cluster, types, runs=RUNS)
    verdicts = {frozenset(run["unschedulable"] or ()) for run in runs if "error" not in run}
    ours = frozenset(plan(cluster, types, "first-fit")["unschedulable"])
    if verdicts != {ours} or len(ours) == len(cluster["pods"]):
        return ""
    return json.dumps({**shown, "unschedulable": sorted(ours)}, separators=(",", ":"))


def _lean(cluster):
    """Leave out volumes that no pod names, and empty lists."""
    text = json.dumps([cluster["pods"], cluster.get("boundPods", ())])
    cluster = dict(cluster)
    claims = cluster.get("persistentVolumeClaims", ())
    spaces = {
        pod["metadata"]["namespace"] for pod in (*cluster["pods"], *cluster.get("boundPods", ()))
    }
    claims = [
        claim
        for claim in claims
        if claim["metadata"]["namespace"] in spaces
        and (
            f'"claimName": "{claim["metadata"]["name"]}"' in text
            or claim["metadata"]["name"].endswith("-own")
        )
    ]
    cluster["persistentVolumeClaims"] = claims
    for key, field in (
        ("persistentVolumes", "volumeName"),
        ("storageClasses", "storageClassName"),
    ):
        named = {claim["spec"].get(field) for claim in claims}
        cluster[key] = [o for o in cluster.get(key, ()) if o["metadata"]["name"] in named]
    return {key: value for key, value in cluster.items() if value}


if __name__ == "__main__":
    sys.exit(main())
