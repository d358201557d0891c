"""Problems by name, for our solver and, as a document, for any other.

A case is `MIX-COUNT/CATALOGUE[/OPTION...]`: `diverse-5000/real`, `generic-5000/real/on-demand`,
`deployments-2000/real/daemons`, `respect-4000/fake400`, `diverse-100/real/nodes`.

Mixes: diverse, generic, deployments (the count is Deployments), sizes (as many as pods), respect and
ignore (preferences), tangled (the count is the seed of a problem of about sixty pods), openb (no count; needs the folder
of the trace). Catalogues: fake400, real, aws (needs a price list). Options: `on-demand` (a NodePool
that buys nothing else), `daemons` (four DaemonSets of 500m and 768Mi a node in all), `nodes`
(beside 1,000 nodes that are mostly full), `commitments` (two, which pay for half of the cores),
`cluster` (three NodePools, reservations, DaemonSets, nodes 60 % full: benchmarks/pooled_cluster.py).

Else one NodePool, no taints, limits beyond reach, as in the reference benchmark. Pods are read from
manifests by the code that reads an API server's, so that those of one template share their shape.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from benchmarks import catalogues, mixes
from benchmarks.pooled_cluster import RESERVATION, pooled_cluster, with_reservations
from benchmarks.running import running_nodes
from karpenter_core.api.commitments import Commitment
from karpenter_core.api.labels import CAPACITY_TYPE, ON_DEMAND
from karpenter_core.api.records import PodView
from karpenter_core.kube import resources
from karpenter_core.kube.wire.codecs import Codecs
from karpenter_core.scheduling.problem import (
    Catalogue,
    CommitmentBalance,
    DaemonPod,
    PreferencePolicy,
    SchedulingProblem,
    SolveOptions,
)
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.testing.builders import node_pool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.mixes import PodTemplate
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.scheduling.problem import ExistingNode

__all__ = ["CASE_FORM", "BenchmarkCase", "load", "read_pods"]

CASE_FORM: Final = "MIX-COUNT/CATALOGUE[/OPTION...]"
OPTIONS: Final = frozenset({"on-demand", "daemons", "nodes", "commitments", "cluster"})
LIMITS: Final = {"cpu": "10000000", "memory": "10000000Gi"}
POOL: Final = "default"
TANGLED_PODS: Final = 60
RUNNING_NODES: Final = 1000
RUNNING_PODS: Final = 12_000
CREATED: Final = datetime(2026, 1, 1, tzinfo=UTC)

DAEMON: Final = mixes.PodTemplate(labels={"app": "agent"}, cpu_milli=125, memory_mib=192)
DAEMONS: Final = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class BenchmarkCase:
    """One case: pods, instance types and what else the problem has."""

    case: str
    catalogue: str
    pods: Sequence[PodTemplate]
    instance_types: tuple[InstanceType, ...]
    options: SolveOptions
    on_demand: bool = False
    daemons: int = 0
    nodes: int = 0
    has_commitments: bool = False
    has_cluster: bool = False

    @cached_property
    def problem(self) -> SchedulingProblem:
        """The case as our solver is asked."""
        return self._in_cluster() if self.has_cluster else self._in_one_pool()

    def _in_cluster(self) -> SchedulingProblem:
        codecs = Codecs()
        pods = tuple(read_pods(self.pods, codecs))
        daemons = list(read_pods([DAEMON] * DAEMONS, codecs, name="agent", daemon=True))
        cluster = pooled_cluster(self.instance_types, pods, daemons)
        catalogue = Catalogue(version="1", instance_types=with_reservations(self.instance_types))
        return SchedulingProblem(
            pods=pods,
            pools=cluster.pools,
            catalogues={pool.name: catalogue for pool in cluster.pools},
            nodes=cluster.nodes,
            daemons=tuple(DaemonPod(name=f"default/{d.name}", shape=d.shape) for d in daemons),
            pool_usage=cluster.usage,
            well_known=catalogues.WELL_KNOWN[self.catalogue] | {RESERVATION},
            namespaces={"default": {}},
        )

    def _in_one_pool(self) -> SchedulingProblem:
        requirements = [(CAPACITY_TYPE, "In", ON_DEMAND)] if self.on_demand else []
        pool = node_pool(POOL, requirements=requirements, labels=mixes.COMMON_LABELS, limits=LIMITS)
        codecs = Codecs()
        daemon = next(read_pods([DAEMON], codecs, name="agent", daemon=True)).shape
        running = mixes.diverse(RUNNING_PODS) if self.nodes else []
        nodes = running_nodes(
            self.instance_types,
            list(read_pods(running, codecs, name="running")),
            count=self.nodes,
            pool=POOL,
        )
        return SchedulingProblem(
            pods=tuple(read_pods(self.pods, codecs)),
            pools=(pool,),
            catalogues={POOL: Catalogue(version="1", instance_types=self.instance_types)},
            nodes=nodes,
            daemons=tuple(
                DaemonPod(name=f"default/agent-{number}", shape=daemon)
                for number in range(self.daemons)
            ),
            well_known=catalogues.WELL_KNOWN[self.catalogue],
            namespaces={"default": {}},
            commitments=_commitments(self.pods) if self.has_commitments else (),
        )

    @property
    def has_document(self) -> bool:
        """Whether a document can say all that the case has."""
        return not self.nodes and not self.has_commitments

    def document(self) -> dict[str, Any]:
        """Return the case as plain data, in the words of Kubernetes' API.

        Raises:
            ValueError: the case has running nodes or commitments, which the document cannot say.
        """
        if not self.has_document:
            raise ValueError(f"{self.case}: a document has no such nodes and no commitments")
        distinct = {id(pod): pod for pod in self.pods}
        numbers = {key: number for number, key in enumerate(distinct)}
        templates = [numbers[id(pod)] for pod in self.pods]
        problem = self.problem
        return {
            "case": self.case,
            "wellKnown": sorted(problem.well_known),
            "reservationLabel": RESERVATION,
            "nodePools": [_pool_document(pool) for pool in problem.pools],
            "instanceTypes": [
                _type_document(it)
                for it in problem.catalogues[problem.pools[0].name].instance_types
            ],
            "templates": [pod.manifest() for pod in distinct.values()],
            "pods": templates,
            "daemons": [DAEMON.manifest()] * len(problem.daemons),
            "nodes": [_node_document(node, templates, problem.daemons) for node in problem.nodes],
            "ignorePreferences": self.options.preferences is PreferencePolicy.IGNORE,
        }


def load(case: str, *, trace: Path | None = None, prices: Path | None = None) -> BenchmarkCase:
    """Build a case by its name.

    `trace` is the folder of the openb trace, `prices` a price list (`catalogues.price_list_types`).

    Raises:
        ValueError: no such case, or it needs a path that is not given.
    """
    mix, *rest = case.split("/")
    if not rest or not set(rest[1:]) <= OPTIONS:
        raise ValueError(f"{case}: not of the form {CASE_FORM}")
    catalogue, options = rest[0], set(rest[1:])
    kind, _, count = mix.partition("-")
    ignore = kind == "ignore"
    return BenchmarkCase(
        case=case,
        catalogue=catalogue,
        pods=_pods(case, kind, int(count or 0), trace),
        instance_types=_instance_types(case, catalogue, prices),
        options=SolveOptions(
            preferences=PreferencePolicy.IGNORE if ignore else PreferencePolicy.RESPECT
        ),
        on_demand="on-demand" in options,
        daemons=DAEMONS if "daemons" in options else 0,
        nodes=RUNNING_NODES if "nodes" in options else 0,
        has_commitments="commitments" in options,
        has_cluster="cluster" in options,
    )


def _commitments(pods: Sequence[PodTemplate]) -> tuple[CommitmentBalance, ...]:
    """Return two commitments, each for a quarter of the cores that the pods ask for."""
    quarter = sum(pod.cpu_milli for pod in pods) // 4
    return tuple(
        CommitmentBalance(
            commitment=Commitment(
                name=f"discount-{share:.0%}",
                requirements=(),
                resource="cpu",
                amount=quarter,
                discount=share,
            ),
            requirements=Requirements(()),
            used=0,
        )
        for share in (0.4, 0.28)
    )


def _pods(case: str, kind: str, count: int, trace: Path | None) -> Sequence[PodTemplate]:
    match kind:
        case "diverse":
            return mixes.diverse(count)
        case "generic":
            return mixes.generic(count)
        case "deployments":
            return mixes.deployments(count)
        case "sizes":
            return mixes.sizes(count)
        case "respect" | "ignore":
            return mixes.preferences(count)
        case "tangled":
            return mixes.tangled(TANGLED_PODS, seed=count)
        case "openb" if trace is not None:
            return mixes.openb(trace)
        case "openb":
            raise ValueError(f"{case}: needs the folder of the trace")
        case _:
            raise ValueError(f"{case}: no mix named {kind!r}")


def _instance_types(case: str, name: str, prices: Path | None) -> tuple[InstanceType, ...]:
    match name:
        case "fake400":
            return catalogues.fake400()
        case "real":
            return catalogues.real()
        case "aws" if prices is not None:
            return catalogues.price_list_types(prices)
        case "aws":
            raise ValueError(f"{case}: needs a price list")
        case _:
            raise ValueError(f"{case}: no catalogue named {name!r}")


def read_pods(
    templates: Sequence[PodTemplate],
    codecs: Codecs | None = None,
    *,
    name: str = "pod",
    daemon: bool = False,
) -> Iterator[PodView]:
    """Read one waiting pod `name-N` for each template, those of one template with one shape."""
    read = (codecs or Codecs()).for_kind(resources.PODS)
    known: dict[int, PodView] = {}
    for number, template in enumerate(templates):
        pod = known.get(id(template))
        if pod is None:
            manifest = template.manifest()
            owner = {"apiVersion": "apps/v1", "kind": "DaemonSet" if daemon else "ReplicaSet"}
            manifest["metadata"] |= {
                "name": name,
                "uid": name,
                "resourceVersion": "1",
                "creationTimestamp": CREATED.isoformat(),
                "ownerReferences": [{**owner, "name": name, "uid": name, "controller": True}],
            }
            manifest["status"] = {
                "phase": "Pending",
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                ],
            }
            decoded = read.decode(json.dumps(manifest).encode())
            if not isinstance(decoded, PodView):
                raise TypeError(f"not a pod: {decoded!r}")
            pod = known[id(template)] = decoded
        yield msgspec.structs.replace(
            pod, name=f"{name}-{number}", uid=f"00000000-0000-4000-8000-{name}-{number:07d}"
        )


def _pool_document(pool: NodePool) -> dict[str, Any]:
    template = pool.spec.template
    return {
        "name": pool.name,
        "weight": pool.spec.weight or 0,
        "labels": template.metadata.labels,
        "requirements": [
            {"key": r.key, "operator": r.operator, "values": list(r.values or ())}
            for r in template.spec.requirements
        ],
        "limits": {name: str(limit) for name, limit in pool.spec.limits.items()},
    }


def _node_document(
    node: ExistingNode, templates: Sequence[int], daemons: Sequence[DaemonPod]
) -> dict[str, Any]:
    """Return a running node; each pod there is a replica of the waiting pod of its number."""
    allocatable = dict(node.available)
    for shape in (*(pod.shape for pod in node.pods), *(daemon.shape for daemon in daemons)):
        for name, amount in shape.requests.items():
            allocatable[name] = allocatable.get(name, 0) + amount
    return {
        "name": node.name,
        "labels": dict(node.labels),
        "capacity": _quantities(node.capacity),
        "allocatable": _quantities(allocatable),
        "pods": [templates[int(pod.name.rpartition("-")[2])] for pod in node.pods],
    }


def _type_document(instance_type: InstanceType) -> dict[str, Any]:
    return {
        "name": instance_type.name,
        "requirements": [
            {"key": r.key, "operator": r.operator, "values": sorted(r.values)}
            for r in instance_type.requirements.values()
        ],
        "offerings": [
            {
                "zone": offering.zone,
                "capacityType": offering.capacity_type,
                "price": offering.price.amount,
                "available": offering.available,
                "reservation": offering.requirements.single_value(RESERVATION),
                "reservationCapacity": offering.reservation_capacity,
            }
            for offering in instance_type.offerings
        ],
        "capacity": _quantities(instance_type.capacity),
        "overhead": _quantities(instance_type.overhead.total()),
    }


def _quantities(amounts: Any) -> dict[str, str]:
    return {key: f"{value}m" if key == "cpu" else str(value) for key, value in amounts.items()}
