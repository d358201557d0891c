"""Each constraint of the closed list, as a plan for hand-made files names it."""

from __future__ import annotations

import json

import pytest

from tests.cli.inputs import POOL, TYPES, instance_type, node, offering, pod, pool, write
from tests.support import device_manifests as devices

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
HOST_PORT = [{"name": "app", "ports": [{"containerPort": 80, "hostPort": 80}]}]
CLAIM = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
MIXED = [
    instance_type(
        "small", "2", "4Gi",
        {**offering(0.1, zone="z1"), "Available": False},
        offering(0.1, zone="z2"), offering(0.1, zone="z3", capacity_type="spot"),
    )
]  # fmt: skip


def marked(app):
    return {"labels": {"app": app}}


def bound(name, node_name, app, **spec):
    return pod(name, cpu="100m", nodeName=node_name, metadata=marked(app), **spec)


def affinity(kind, key, app):
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(key, **fields):
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return [{**rule, "labelSelector": {"matchLabels": {"app": "a"}}, **fields}]


def needs(key, operator, *values, **fields):
    return {"requirements": [{"key": key, "operator": operator, "values": list(values), **fields}]}


def volume_in(zone):
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    return {
        "persistentVolumeClaims": [
            {"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "disk"}}
        ],
        "persistentVolumes": [
            {
                "metadata": {"name": "disk"},
                "spec": {
                    "csi": {"driver": "disk.example.com"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                },
            }
        ],
    }


NO_ROOM = node("n1", cpu="100m", labels={ZONE: "z1"})

CASES = {
    "an expendable pod": (
        "priority",
        {"pods": [pod("a", metadata={"annotations": {"karpenter.sh/expendable": "true"}})]},
    ),
    "a device that no instance type has": (
        "device",
        {
            "deviceClasses": [devices.CLASS],
            "resourceClaims": [
                {
                    **devices.claim("gpu"),
                    "metadata": {**devices.claim("gpu")["metadata"], "namespace": "shop"},
                }
            ],
            "pods": [pod("a", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])],
        },
    ),
    "a taint of the pool": (
        "taint",
        {
            "nodePools": [pool(template={"taints": [{"key": "t", "effect": "NoSchedule"}]})],
            "pods": [pod("a")],
        },
    ),
    "an architecture nobody sells": (
        "requirement",
        {"pods": [pod("a", nodeSelector={"kubernetes.io/arch": "arm64"})]},
    ),
    "a label nobody has": ("requirement", {"pods": [pod("a", nodeSelector={"team": "blue"})]}),
    "a zone outside of the pool": (
        "requirement",
        {
            "nodePools": [pool(template=needs(ZONE, "NotIn", "z2"))],
            "pods": [pod("a", nodeSelector={ZONE: "z2"})],
        },
    ),
    "more than the largest has": ("resource", {"pods": [pod("a", cpu="100")]}),
    "a device nobody has": (
        "resource",
        {
            "pods": [
                pod("a", containers=[{"name": "x", "resources": {"limits": {"test/gpu": "1"}}}])
            ]
        },
    ),
    "a port of a daemon": (
        "port",
        {
            "daemonSetPods": [pod("agent", containers=HOST_PORT)],
            "pods": [pod("a", containers=HOST_PORT)],
        },
    ),
    "a claim that is not there": ("volume", {"pods": [pod("a", volumes=CLAIM)]}),
    "a volume in a zone nobody sells": (
        "volume",
        {**volume_in("z9"), "pods": [pod("a", volumes=CLAIM)]},
    ),
    "a spread over domains nobody has": (
        "topology",
        {"pods": [pod("a", metadata=marked("a"), topologySpreadConstraints=spread("x/rack"))]},
    ),
    "a spread whose smallest domain is out of reach": (
        "topology",
        {
            "nodePools": [pool(template=needs(ZONE, "In", "z1"))],
            "nodes": [NO_ROOM, node("n2", cpu="100m", labels={ZONE: "z2"})],
            "boundPods": [bound("r", "n1", "a")],
            "pods": [pod("a", metadata=marked("a"), topologySpreadConstraints=spread(ZONE))],
        },
    ),
    "a spread over more domains than there are": (
        "topology",
        {
            "nodes": [NO_ROOM],
            "boundPods": [bound("r", "n1", "a")],
            "pods": [
                pod("a", metadata=marked("a"), topologySpreadConstraints=spread(ZONE, minDomains=2))
            ],
        },
    ),
    "pods to be near that are nowhere": (
        "affinity",
        {"pods": [pod("a", affinity=affinity("podAffinity", ZONE, "db"))]},
    ),
    "pods to be near whose node is full": (
        "affinity",
        {
            "nodes": [NO_ROOM],
            "boundPods": [bound("db", "n1", "db")],
            "pods": [pod("a", affinity=affinity("podAffinity", HOSTNAME, "db"))],
        },
    ),
    "pods to stay away from in the only zone": (
        "affinity",
        {
            "nodes": [NO_ROOM],
            "boundPods": [bound("db", "n1", "db")],
            "pods": [pod("a", affinity=affinity("podAntiAffinity", ZONE, "db"))],
        },
    ),
    "pods that want it away from the only zone": (
        "affinity",
        {
            "nodes": [NO_ROOM],
            "boundPods": [bound("db", "n1", "db", affinity=affinity("podAntiAffinity", ZONE, "a"))],
            "pods": [pod("a", metadata=marked("a"))],
        },
    ),
    "a limit below the smallest type": (
        "limit",
        {"nodePools": [pool(limits={"cpu": "1"})], "pods": [pod("a")]},
    ),
    "a limit that other pods of the batch have used up": (
        "limit",
        {
            "nodePools": [pool(limits={"nodes": "1"})],
            "pods": [pod("b", cpu="15"), pod("a", cpu="2")],
        },
    ),
    "more types demanded than fit": (
        "minValues",
        {
            "nodePools": [pool(template=needs(INSTANCE_TYPE, "Exists", minValues=3))],
            "pods": [pod("a", cpu="3")],
        },
    ),
    "more types demanded than there are": (
        "minValues",
        {
            "nodePools": [pool(template=needs(INSTANCE_TYPE, "Exists", minValues=4))],
            "pods": [pod("a")],
        },
    ),
    "nothing in stock in its zone": ("offering", {"pods": [pod("a", nodeSelector={ZONE: "z1"})]}),
    "not on demand in its zone": (
        "offering",
        {"pods": [pod("a", nodeSelector={ZONE: "z3", CAPACITY_TYPE: "on-demand"})]},
    ),
    "no room beside the daemons": (
        "daemon",
        {"daemonSetPods": [pod("agent", cpu="4")], "pods": [pod("a", cpu="15")]},
    ),
}


@pytest.fixture
def why(program, tmp_path):
    """Plan for a cluster by keys and return why the pod shop/a stays pending."""

    def run(cluster, *, types):
        file = write(tmp_path / "cluster.json", {"nodePools": [POOL], **cluster})
        catalogue = write(tmp_path / "types.json", types)
        shown = program(
            "plan", "--offline", file, "--instance-types-file", catalogue, "-o", "json",
            "--packing", "first-fit",
        )  # fmt: skip
        return json.loads(shown.out)["unschedulable"]["shop/a"]

    return run


@pytest.mark.parametrize("case", CASES)
def test_the_first_constraint_that_fails_is_named(why, case):
    """By its name of the closed list, with facts; the message says it again."""
    constraint, cluster = CASES[case]

    result = why(cluster, types=MIXED if constraint == "offering" else TYPES)

    assert result["pools"]["general"]["constraint"] == constraint
    detail = result["pools"]["general"]["detail"]
    assert detail
    assert detail in result["message"]


def test_every_constraint_that_files_can_show_has_a_case():
    """All but `reservation`, which needs capacity reserved by a provider."""
    from karpenter_core.scheduling.problem import PoolConstraint

    assert {case for case, _ in CASES.values()} == set(PoolConstraint) - {
        PoolConstraint.RESERVATION
    }
