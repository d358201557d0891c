"""Records the reference's answers for clusters, so that checks need no Go.

    .venv/bin/python tests/peer/golden.py --clusters 150 --seed 100000

Writes `data/clusters.jsonl.gz`, one JSON object in each line: `seed`, `cluster`, `types`, and the names
of the pods that every run of the reference leaves (`unschedulable`). Where we leave other pods, for a
reason that `intended_differences.py` knows, the line also has the `difference`, and what we leave (`ours`).

The program takes seeds one after the other and drops a cluster in two cases only:

- runs of the reference do not agree with each other (ties are broken by chance there);
- the reference fails.

Nothing is dropped because we differ: a difference that nothing explains ends the program with the
seed. `data/chosen.json` says how many clusters were drawn, dropped and kept, and which differ.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peer import PEER
from tests.peer.compare import difference
from tests.peer.draw import random_cluster
from tests.peer.intended_differences import THEY_LEAVE, WE_LEAVE, explanation
from tests.peer.our_plans import plan
from tests.peer.reference import Reference

FILE = Path(__file__).parent / "data" / "clusters.jsonl.gz"
CHOSEN = FILE.with_name("chosen.json")
RUNS = 12
COMPACT = (",", ":")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", type=int, default=150, help="how many (default 150)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    arguments = parser.parse_args()
    lines, dropped = [], Counter()
    seed = arguments.seed
    with Reference() as reference:
        while len(lines) < arguments.clusters:
            try:
                lines.append({"seed": seed, **kept(reference, *random_cluster(seed))})
            except DroppedError as error:
                dropped[str(error)] += 1
            except UnexplainedError as error:
                sys.stderr.write(f"seed {seed}: {error}\n")
                return 1
            seed += 1
    FILE.parent.mkdir(exist_ok=True)
    text = "".join(f"{json.dumps(line, separators=COMPACT)}\n" for line in lines)
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))  # the same bytes for the same clusters
    chosen = summary(lines, dropped, drawn=seed - arguments.seed)
    CHOSEN.write_text(f"{json.dumps(chosen, indent=2)}\n")
    sys.stdout.write(CHOSEN.read_text())
    return 0


def summary(lines, dropped, *, drawn):
    """Say how the clusters of the file were chosen."""
    different = Counter(line["difference"] for line in lines if "difference" in line)
    return {
        "reference": PEER,
        "firstSeed": lines[0]["seed"],
        "drawn": drawn,
        "dropped": dict(sorted(dropped.items())),
        "kept": len(lines),
        "samePodsLeft": len(lines) - different.total(),
        "differences": dict(sorted(different.items())),
    }


def read():
    """Return the lines of the file."""
    return [json.loads(line) for line in gzip.decompress(FILE.read_bytes()).splitlines()]


class DroppedError(Exception):
    """A cluster is not kept, whatever we make of it."""


class UnexplainedError(Exception):
    """We leave other pods than the reference, and nothing that is known explains it."""


def kept(reference, cluster, types):
    """Return what the file has of a cluster.

    Raises:
        DroppedError: it is not one to keep.
        UnexplainedError: we differ from the reference.
    """
    cluster = _lean(cluster)
    line = {"cluster": cluster, "types": types}
    runs = reference.ask(cluster, types, runs=RUNS)
    verdicts = {frozenset(run["unschedulable"] or ()) for run in runs if "error" not in run}
    if any("error" in run for run in runs):
        raise DroppedError("the reference fails")
    if len(verdicts) > 1:
        raise DroppedError("chance has a say")
    (theirs,) = verdicts
    line["unschedulable"] = sorted(theirs)
    ours = frozenset(plan(cluster, types, "first-fit")["unschedulable"])
    if ours != theirs:
        line |= {"difference": _difference(reference, cluster, types), "ours": sorted(ours)}
    return line


def _difference(reference, cluster, types):
    """Say why we leave other pods than the reference."""
    cluster = {"nodes": [], "nodeClaims": [], "boundPods": [], **cluster}
    kind, plans = difference(reference, cluster, types)
    if not kind:
        return "pods of one size: it does not matter which one waits"
    why = ""
    if kind in {WE_LEAVE, THEY_LEAVE}:
        why = explanation(
            cluster, types, plans, kind, lambda *changed: difference(reference, *changed)
        )
    if not why:
        raise UnexplainedError(kind)
    return why


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
