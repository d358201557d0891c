"""Draws small clusters with one waiting pod each, of constraints as odd as the API server allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from random import Random

__all__ = ["DrawnCluster", "draw_cluster"]

HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
RACK: Final = "example.com/rack"
SIZE: Final = "example.com/size"
CASE: Final = "example.com/case"
APPS: Final = ("a", "b")
TAINTS: Final = (("dedicated", "x"), ("dedicated", "y"), ("special", ""))
FEATURES: Final = (
    "sizes", "init", "ports", "tolerations", "nodes", "affinity", "anti-affinity", "spread"
)  # fmt: skip
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCluster:
    """Nodes, pods that run on them, and one pod that waits; all in namespaces of their own."""

    namespaces: tuple[dict[str, Any], ...]
    nodes: tuple[dict[str, Any], ...]
    running: tuple[dict[str, Any], ...]
    waiting: dict[str, Any]


def draw_cluster(random: Random, name: str) -> DrawnCluster:
    """Draw a cluster; its nodes have the label `example.com/case` with this name.

    Nodes have a label for every topology key: Karpenter wants one where kube-scheduler takes a node
    without it for free.
    """
    draw = _Drawing(random, name)
    nodes = tuple(draw.node(number) for number in range(random.randint(1, 4)))
    wanted = set(random.sample(FEATURES, random.randint(1, 3)))
    running = tuple(
        draw.running(number, random.choice(nodes), wanted & {"sizes", "ports", "anti-affinity"})
        for number in range(random.randint(0, 5))
    )
    return DrawnCluster(
        namespaces=tuple(draw.namespace(each) for each in (name, f"{name}-other")),
        nodes=nodes,
        running=running,
        waiting=draw.waiting(wanted),
    )


class _Drawing:
    def __init__(self, random: Random, name: str) -> None:
        self.random: Final = random
        self.name: Final = name

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def namespace(self, name: str) -> dict[str, Any]:
        labels = {"team": name, CASE: self.name}
        return {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": labels},
        }

    def node(self, number: int) -> dict[str, Any]:
        choose = self.random.choice
        name = f"{self.name}-{number}"
        host = name if self.chance(0.6) else f"host-{name}"
        labels = {
            CASE: self.name, HOST: host, ZONE: choose(("z1", "z2")), RACK: choose(("r1", "r2"))
        }  # fmt: skip
        if self.chance(0.7):
            labels[SIZE] = choose(("3", "5", "07", "large"))
        amounts = {
            "cpu": choose(("1500m", "2", "4")),
            "memory": choose(("2Gi", "4Gi", "8Gi")),
            "pods": choose(("3", "110")),
            "example.com/gpu": choose(("0", "1", "2")),
        }
        spec: dict[str, Any] = {"unschedulable": True} if self.chance(0.1) else {}
        if self.chance(0.3):
            key, value = choose(TAINTS)
            effect = choose(("NoSchedule", "NoExecute"))
            spec["taints"] = [{"key": key, "value": value, "effect": effect}]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": amounts, "capacity": amounts},
        }

    def running(self, number: int, node: dict[str, Any], features: set[str]) -> dict[str, Any]:
        spec = self.spec(features if self.chance(0.7) else set())
        spec |= {"nodeName": node["metadata"]["name"], "tolerations": [{"operator": "Exists"}]}
        namespace = self.random.choice((self.name, self.name, f"{self.name}-other"))
        return self.pod(f"running-{number}", namespace, spec)

    def waiting(self, features: set[str]) -> dict[str, Any]:
        spec = self.spec(features)
        spec["nodeSelector"] = {CASE: self.name}
        spec["schedulingGates"] = [{"name": "example.com/planning"}]
        return self.pod("waiting", self.name, spec)

    def pod(self, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
        labels = {"app": self.random.choice(APPS)}
        labels |= {
            key: self.random.choice("12") for key in ("version", "tenant") if self.chance(0.3)
        }
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def spec(self, features: set[str]) -> dict[str, Any]:
        main: dict[str, Any] = {
            "name": "main",
            "image": "pause",
            "resources": self.requests(features),
        }
        if "ports" in features:
            main["ports"] = [self.port()]
        spec: dict[str, Any] = {"terminationGracePeriodSeconds": 0, "containers": [main]}
        if "init" in features:
            spec["initContainers"] = [
                {
                    "name": f"init-{number}",
                    "image": "pause",
                    "resources": self.requests({"sizes"}),
                    **({"restartPolicy": "Always"} if self.chance(0.5) else {}),
                }
                for number in range(self.random.randint(1, 4))
            ]
        if "tolerations" in features:
            spec["tolerations"] = [self.toleration() for _ in range(self.random.randint(1, 2))]
        affinity: dict[str, Any] = {}
        if "nodes" in features:
            terms = [
                {"matchExpressions": [self.expression() for _ in range(self.random.randint(1, 2))]}
                for _ in range(self.random.randint(1, 2))
            ]
            affinity["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": terms}}
        for feature, field in (("affinity", "podAffinity"), ("anti-affinity", "podAntiAffinity")):
            if feature in features:
                terms = [self.term() for _ in range(self.random.randint(1, 2))]
                affinity[field] = {_REQUIRED: terms}
        if affinity:
            spec["affinity"] = affinity
        if "spread" in features:
            keys = self.random.sample((ZONE, RACK), self.random.randint(1, 2))
            spec["topologySpreadConstraints"] = [self.spread(key) for key in keys]
        return spec

    def requests(self, features: set[str]) -> dict[str, Any]:
        choose = self.random.choice
        if "sizes" not in features:
            return {"requests": {"cpu": "100m"}}
        amounts = {"cpu": choose(("0", "0.5", "1100m", "2"))}
        if self.chance(0.8):
            amounts["memory"] = choose(("0", "500M", "1.5Gi", "128974848"))
        devices = {"example.com/gpu": choose(("1", "2"))} if self.chance(0.2) else {}
        return {"requests": amounts | devices, "limits": devices}

    def port(self) -> dict[str, Any]:
        port: dict[str, Any] = {"containerPort": 80, "hostPort": self.random.choice((8080, 9090))}
        if self.chance(0.5):
            port["hostIP"] = self.random.choice(("127.0.0.1", "10.0.0.1", "0.0.0.0", "::"))
        if self.chance(0.3):
            port["protocol"] = "UDP"
        return port

    def toleration(self) -> dict[str, Any]:
        key, value = self.random.choice((*TAINTS, ("node.kubernetes.io/unschedulable", "")))
        if self.chance(0.5):
            toleration = {"key": key, "operator": "Exists"}
        else:
            toleration = {"key": key, "value": value}
        if self.chance(0.5):
            toleration["effect"] = self.random.choice(("NoSchedule", "NoExecute"))
        return toleration

    def expression(self) -> dict[str, Any]:
        key = self.random.choice((ZONE, RACK, SIZE, SIZE, "example.com/absent"))
        operator = self.random.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in {"Gt", "Lt"}:
            return {
                "key": key,
                "operator": operator,
                "values": [self.random.choice(("0", "3", "5"))],
            }
        if operator in {"Exists", "DoesNotExist"}:
            return {"key": key, "operator": operator}
        values = self.random.sample(("z1", "r1", "r2", "3", "07"), self.random.randint(1, 3))
        return {"key": key, "operator": operator, "values": values}

    def selector(self) -> dict[str, Any]:
        return self.random.choice(
            (
                {"matchLabels": {"app": self.random.choice(APPS)}},
                {"matchLabels": {"app": self.random.choice(APPS), "tenant": "1"}},
                {"matchExpressions": [{"key": "app", "operator": "In", "values": [*APPS]}]},
                {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b"]}]},
                {"matchExpressions": [{"key": "version", "operator": "DoesNotExist"}]},
                {},
            )
        )

    def term(self) -> dict[str, Any]:
        key = self.random.choice((ZONE, HOST, RACK))
        term: dict[str, Any] = {"topologyKey": key, "labelSelector": self.selector()}
        if self.chance(0.3):
            term["namespaces"] = [f"{self.name}-other"]
        if self.chance(0.3):
            team = self.random.choice((self.name, f"{self.name}-other", "nobody"))
            term["namespaceSelector"] = {"matchLabels": {"team": team}}
        if self.chance(0.2):
            term["mismatchLabelKeys"] = ["owner"]
        return term

    def spread(self, key: str) -> dict[str, Any]:
        spread: dict[str, Any] = {
            "maxSkew": self.random.choice((1, 1, 2)),
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": self.selector(),
        }
        if self.chance(0.3):
            spread["minDomains"] = self.random.randint(1, 3)
        for policy in ("nodeTaintsPolicy", "nodeAffinityPolicy"):
            if self.chance(0.3):
                spread[policy] = self.random.choice(("Honor", "Ignore"))
        if self.chance(0.2):
            spread["matchLabelKeys"] = ["version"] if "tenant" in str(spread) else ["owner"]
        return spread
