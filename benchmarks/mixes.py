"""Pods to plan for, as manifests: what a user would write, one template for all its pods.

`diverse` is the mix of the reference benchmark, digit for digit (a fifth each: plain, zonal spread,
hostname spread, zonal self-affinity, hostname anti-affinity; spread selectors drawn independently
of own labels). `generic` is its plain fifth alone, `preferences` its preference benchmark.
`deployments` is what clusters look like: each with its own selector, from one replica to more than
a hundred. In `sizes` nearly each pod has a size of its own. `tangled` are small problems with all kinds of constraints that get in each other's way.
`openb` reads the published pod list of a real cluster.
"""

from __future__ import annotations

import csv
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from benchmarks.catalogues import ZONES
from benchmarks.gorand import GoRandom
from karpenter_core.api.labels import ARCH, CAPACITY_TYPE, HOSTNAME, ON_DEMAND, ZONE

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "PodTemplate",
    "checksum",
    "deployments",
    "diverse",
    "generic",
    "openb",
    "preferences",
    "sizes",
    "tangled",
]

Manifest = dict[str, Any]

CPUS: Final = (100, 250, 500, 1000, 1500)
MEMORIES: Final = (100, 256, 512, 1024, 2048, 4096)
"""Milli-CPUs and MiB of the reference's pods."""

COMMON_LABELS: Final = {"testing/cluster": "unspecified"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodTemplate:
    """The template of some pods: labels and `spec` as in a manifest, the same object for all.

    `line` names the template in checksums.
    """

    labels: dict[str, str]
    cpu_milli: int
    memory_mib: int
    spec: Manifest = field(default_factory=dict[str, Any])
    line: str = ""

    def manifest(self) -> Manifest:
        """Return metadata and spec, as a pod template of a workload has them."""
        requests = {"cpu": f"{self.cpu_milli}m", "memory": f"{self.memory_mib}Mi"}
        container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
        return {
            "metadata": {"namespace": "default", "labels": {**COMMON_LABELS, **self.labels}},
            "spec": {"containers": [container], **self.spec},
        }


def checksum(pods: list[PodTemplate]) -> tuple[int, int, str]:
    """Return total milli-CPUs, total MiB and a digest of what the reference's pods are."""
    text = "".join(f"{pod.line} {pod.cpu_milli} {pod.memory_mib}\n" for pod in pods)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return sum(pod.cpu_milli for pod in pods), sum(pod.memory_mib for pod in pods), digest


def sizes(count: int) -> list[PodTemplate]:
    """Draw pods of which nearly each has a size of its own, as a vertical autoscaler sets them.

    A third is plain, a third avoids other pods of its app, of which there are none, and a third is spread
    over zones, three to an app.
    """
    draw = random.Random(count)
    pods: list[PodTemplate] = []
    for number in range(count):
        is_spread = number % 3 == 2
        app = {"app": f"spread-{number // 9}" if is_spread else f"app-{number}"}
        specs: tuple[Manifest, ...] = (
            {},
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [_term(HOSTNAME, app)]
                    }
                }
            },
            {
                "topologySpreadConstraints": [
                    {
                        "topologyKey": ZONE,
                        "maxSkew": 1,
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": app},
                    }
                ]
            },
        )
        pods.append(
            PodTemplate(
                labels=app,
                cpu_milli=draw.randrange(50, 4000, 7),
                memory_mib=draw.randrange(64, 8000, 11),
                spec=specs[number % 3],
            )
        )
    return pods


# -- the reference's mixes -------------------------------------------------------------------------


def diverse(count: int) -> list[PodTemplate]:
    """Draw the reference's diverse mix for `count` pods."""
    draw = _ReferenceDraw()
    fifth = count // 5
    kinds = (
        draw.generic,
        lambda: draw.spread("zone"),
        lambda: draw.spread("host"),
        draw.affinity,
        draw.anti_affinity,
    )
    pods = [make() for make in kinds for _ in range(fifth)]
    return pods + [draw.generic() for _ in range(count - 5 * fifth)]


def generic(count: int) -> list[PodTemplate]:
    """Draw plain pods only."""
    draw = _ReferenceDraw()
    return [draw.generic() for _ in range(count)]


def preferences(count: int) -> list[PodTemplate]:
    """Make identical pods with one preference that can be had for all and one that cannot."""
    draw = GoRandom()
    labels = {"app": "nginx"}
    wished_node = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [ZONES[0]]}]}
    wished_apart = [
        {"weight": weight, "podAffinityTerm": _term(key, labels)}
        for weight, key in ((10, ZONE), (1, HOSTNAME))
    ]
    pod = PodTemplate(
        labels=labels,
        cpu_milli=CPUS[draw.below(len(CPUS))],
        memory_mib=MEMORIES[draw.below(len(MEMORIES))],
        spec={
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": wished_node}
                    ]
                },
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": wished_apart
                },
            }
        },
    )
    return [pod] * count


class _ReferenceDraw:
    """Deals pods in the order of draws of the reference; equal pods share one template."""

    def __init__(self) -> None:
        self._draw = GoRandom()
        self._known: dict[tuple[str, int, int], PodTemplate] = {}

    def generic(self) -> PodTemplate:
        label = self._letter()
        return self._pod(f"generic {label} -", {"my-label": label})

    def spread(self, kind: str) -> PodTemplate:
        label, selected = self._letter(), self._letter()
        key = ZONE if kind == "zone" else HOSTNAME
        spec = {"topologySpreadConstraints": [_spread(key, {"my-label": selected})]}
        return self._pod(f"spread-{kind} {label} {selected}", {"my-label": label}, spec)

    def affinity(self) -> PodTemplate:
        label = self._letter()
        labels = {"my-affininity": label}
        return self._pod(f"affinity-zone {label} {label}", labels, _near(_term(ZONE, labels)))

    def anti_affinity(self) -> PodTemplate:
        labels = {"app": "nginx"}
        return self._pod("antiaffinity-host nginx nginx", labels, _apart(_term(HOSTNAME, labels)))

    def _letter(self) -> str:
        return "abcdefg"[self._draw.below(7)]

    def _pod(self, line: str, labels: dict[str, str], spec: Manifest | None = None) -> PodTemplate:
        cpu_milli, memory_mib = CPUS[self._draw.below(5)], MEMORIES[self._draw.below(6)]
        known = self._known.get((line, cpu_milli, memory_mib))
        if known is None:
            known = self._known[line, cpu_milli, memory_mib] = PodTemplate(
                labels=labels,
                cpu_milli=cpu_milli,
                memory_mib=memory_mib,
                spec=spec or {},
                line=line,
            )
        return known


def _spread(key: str, selected: dict[str, str], max_skew: int = 1) -> Manifest:
    return {
        "maxSkew": max_skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": selected},
    }


def _term(key: str, selected: dict[str, str]) -> Manifest:
    return {"topologyKey": key, "labelSelector": {"matchLabels": selected}}


def _near(*terms: Manifest) -> Manifest:
    return {"affinity": {"podAffinity": _required(terms)}}


def _apart(*terms: Manifest) -> Manifest:
    return {"affinity": {"podAntiAffinity": _required(terms)}}


def _required(terms: tuple[Manifest, ...]) -> Manifest:
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


# -- deployments -----------------------------------------------------------------------------------

MOST_REPLICAS: Final = 120


def deployments(count: int, seed: int = 7) -> list[PodTemplate]:
    """Make the pods of `count` Deployments, 24 each on average, evenly spread by magnitude.

    40 % spread over zones, 15 % over zones and hosts, 10 % one to a host; the rest is plain.
    """
    draw = random.Random(seed)
    pods: list[PodTemplate] = []
    for number in range(count):
        labels = {"app": f"app-{number}"}
        zonal, hosts = _spread(ZONE, labels), _spread(HOSTNAME, labels)
        kind = draw.random()
        if kind < 0.40:
            spec: Manifest = {"topologySpreadConstraints": [zonal]}
        elif kind < 0.55:
            spec = {"topologySpreadConstraints": [zonal, hosts]}
        elif kind < 0.65:
            spec = _apart(_term(HOSTNAME, labels))
        else:
            spec = {}
        pod = PodTemplate(
            labels=labels, cpu_milli=_pick(draw, CPUS), memory_mib=_pick(draw, MEMORIES), spec=spec
        )
        pods += [pod] * int(MOST_REPLICAS ** draw.random())
    return pods


def _pick(draw: random.Random, choices: tuple[Any, ...]) -> Any:
    """Choose by `random()` alone, whose numbers no version of Python changes."""
    return choices[int(draw.random() * len(choices))]


# -- small problems full of constraints ------------------------------------------------------------


def tangled(count: int, seed: int) -> list[PodTemplate]:
    """Make about `count` pods of up to a dozen workloads whose constraints overlap.

    Own and foreign selectors, skews from 1 to 5, zones and hosts together, anti-affinity across
    workloads and zones, selectors of zone, architecture and capacity type, pods from nothing to 16
    CPUs, of much CPU or much memory alone.
    """
    draw = random.Random(seed)
    apps = [f"app-{number}" for number in range(1 + int(draw.random() * 12))]
    pods: list[PodTemplate] = []
    for app in apps:
        template = PodTemplate(
            labels={"app": app, "tier": _pick(draw, ("front", "back"))},
            cpu_milli=_pick(draw, (0, 50, 100, 250, 500, 1000, 1500, 4000, 16000)),
            memory_mib=_pick(draw, (0, 16, 100, 256, 512, 1024, 2048, 4096, 16384)),
            spec=_tangle(draw, app, apps),
        )
        pods += [template] * max(1, int(draw.random() * 2 * count / len(apps)))
    return pods


def _tangle(draw: random.Random, app: str, apps: list[str]) -> Manifest:
    own, other = {"app": app}, {"app": _pick(draw, tuple(apps))}
    tier = {"tier": _pick(draw, ("front", "back"))}
    skew = 1 + int(draw.random() * 5)
    constraints: tuple[Callable[[], Manifest], ...] = (
        dict,
        lambda: {"topologySpreadConstraints": [_spread(ZONE, own, skew)]},
        lambda: {"topologySpreadConstraints": [_spread(HOSTNAME, own, skew)]},
        lambda: {"topologySpreadConstraints": [_spread(ZONE, own), _spread(HOSTNAME, own, skew)]},
        lambda: {"topologySpreadConstraints": [_spread(ZONE, tier, skew)]},
        lambda: {"topologySpreadConstraints": [_spread(HOSTNAME, other, skew)]},
        lambda: _near(_term(ZONE, own)),
        lambda: _apart(_term(HOSTNAME, own)),
        lambda: _apart(_term(HOSTNAME, tier)),
        lambda: _apart(_term(HOSTNAME, other)),
    )
    spec = _pick(draw, constraints)()
    selectors: tuple[dict[str, str], ...] = (
        {},
        {},
        {},
        {ZONE: _pick(draw, ZONES)},
        {ARCH: "arm64"},
        {CAPACITY_TYPE: ON_DEMAND},
    )
    selector = _pick(draw, selectors)
    return {**spec, "nodeSelector": selector} if selector else spec


# -- a published trace -----------------------------------------------------------------------------


def openb(folder: Path) -> list[PodTemplate]:
    """Read the pods of the cluster "openb" as CPU and memory, times and GPUs left out.

    `folder` holds the pod and node lists of Alibaba's cluster-trace-gpu-v2023 (published for
    research and study). Equal requests are one workload.
    """
    with (folder / "openb_pod_list_default.csv").open() as lines:
        sizes = [(int(row["cpu_milli"]), int(row["memory_mib"])) for row in csv.DictReader(lines)]
    shapes = {
        (cpu_milli, memory_mib): PodTemplate(
            labels={"app": f"openb-{number}"}, cpu_milli=cpu_milli, memory_mib=memory_mib
        )
        for number, (cpu_milli, memory_mib) in enumerate(sorted(set(sizes)))
    }
    return [shapes[size] for size in sizes]
