"""Draws random catalogues, NodePools, Nodes and NodeClaims."""

from __future__ import annotations

from tests.peer.choices import (
    ARCH,
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    CORES,
    FAMILY,
    HOSTNAME,
    INSTANCE_TYPE,
    LEVEL,
    OS,
    POOL,
    RACK,
    RACKS,
    SIZE,
    TEAM,
    TEAMS,
    ZONE,
    ZONES,
)

NODE_CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
GIB = 2**30


# -- catalogues ------------------------------------------------------------------------------------


def instance_types(choices):
    """Draw a catalogue in the format of the KWOK provider."""
    types = {}
    for _ in range(choices.number(1, 8)):
        cores, ratio = choices.one((1, 2, 2, 4, 4, 8, 16)), choices.one((1, 2, 4))
        arch = choices.one(("amd64", "amd64", "amd64", "arm64"))
        family = {1: "c", 2: "m", 4: "r"}[ratio] + ("a" if arch == "arm64" else "")
        name = f"{family}-{cores}"
        types[name] = {
            "name": name,
            "architecture": arch,
            "operatingSystems": choices.one((["linux"], ["linux"], ["linux", "windows"])),
            "resources": _resources(choices, cores, ratio),
            "offerings": _offerings(choices, cores, ratio),
        }
    return list(types.values())


def _resources(choices, cores, ratio):
    resources = {
        "cpu": str(cores),
        "memory": f"{cores * ratio}Gi",
        "ephemeral-storage": "20Gi",
        "pods": choices.one(("110", "110", "8", "3")),
    }
    if choices.chance(25):
        resources["example.com/gpu"] = choices.one(("1", "2"))
    if choices.chance(30, "hugepages"):
        resources["hugepages-2Mi"] = "512Mi"
    return resources


def _offerings(choices, cores, ratio):
    zones = choices.some(ZONES, least=1) if choices.chance(50) else ZONES
    kinds = choices.some(CAPACITY_TYPES) if choices.chance(40) else CAPACITY_TYPES
    price = cores * (1 + ratio / 4) * 0.04
    offerings = []
    for zone in zones:
        for kind in kinds:
            factor = (0.4 if kind == "spot" else 1.0) * choices.one((1.0, 1.05, 0.9))
            offerings.append(
                {
                    "Price": round(price * factor, 4),
                    "Available": not choices.chance(25, "shortage"),
                    "Requirements": [
                        {"key": CAPACITY_TYPE, "operator": "In", "values": [kind]},
                        {"key": ZONE, "operator": "In", "values": [zone]},
                    ],
                }
            )
    return offerings


# -- NodePools -------------------------------------------------------------------------------------


def node_pools(choices, types):
    """Draw one to three pools."""
    names = choices.some(("alpha", "beta", "gamma"), least=1, most=3)
    return [_node_pool(choices, name, types) for name in names]


def _node_pool(choices, name, types):
    spec = {
        "template": {
            "metadata": {"labels": _pool_labels(choices)},
            "spec": {
                "nodeClassRef": NODE_CLASS,
                "requirements": _pool_requirements(choices, types),
                "expireAfter": "Never",
            },
        },
    }
    template_spec = spec["template"]["spec"]
    if choices.chance(40, "taints"):
        template_spec["taints"] = choices.some(_TAINTS, most=2)
    if choices.chance(30, "soft_taints"):
        template_spec.setdefault("taints", []).append({"key": "soft", "effect": "PreferNoSchedule"})
    if choices.chance(25, "taints"):
        template_spec["startupTaints"] = [{"key": "example.com/starting", "effect": "NoSchedule"}]
    if choices.chance(60, "weights"):
        spec["weight"] = choices.number(1, 5)
    if choices.chance(50, "limits"):
        spec["limits"] = choices.one(_LIMITS)
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": spec,
    }


_LIMITS = (
    {"cpu": "3"},
    {"cpu": "8"},
    {"cpu": "20"},
    {"cpu": "40"},
    {"memory": "16Gi"},
    {"memory": "64Gi"},
    {"cpu": "16", "memory": "64Gi"},
    {"example.com/gpu": "1"},
    {"nodes": "2"},
)
_TAINTS = (
    {"key": "dedicated", "value": "blue", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "green", "effect": "NoExecute"},
    {"key": "example.com/size", "value": "5", "effect": "NoSchedule"},
)


def _pool_labels(choices):
    labels = {}
    if choices.chance(25, "custom"):
        labels[TEAM] = choices.one(TEAMS)
    if choices.chance(15, "custom"):
        labels[RACK] = choices.one(RACKS)
    return labels


def _pool_requirements(choices, types):
    drawn = {}
    for _ in range(choices.one((0, 0, 1, 1, 2, 3))):
        requirement = _pool_requirement(choices, types)
        drawn[requirement["key"], requirement["operator"]] = requirement
    return list(drawn.values())


def _pool_requirement(choices, types):  # noqa: C901 - one case for each kind
    names = [it["name"] for it in types]
    families = sorted({name.split("-")[0] for name in names})
    match choices.number(0, 11):
        case 0 | 1:
            result = _either(choices, ZONE, ZONES)
        case 2:
            result = {
                "key": CAPACITY_TYPE,
                "operator": "In",
                "values": choices.some(CAPACITY_TYPES),
            }
        case 3:
            result = {"key": ARCH, "operator": "In", "values": choices.one((["amd64"], ["arm64"]))}
        case 4:
            result = _either(choices, INSTANCE_TYPE, names)
        case 5:
            result = _either(choices, FAMILY, families)
        case 6:
            operator = choices.one(("Gt", "Lt", "Gte", "Lte"))
            result = {"key": CORES, "operator": operator, "values": [choices.one("1248")]}
        case 7 if choices.has("custom"):
            result = {"key": TEAM, "operator": "In", "values": choices.some(TEAMS)}
        case 8 if choices.has("custom"):
            result = {"key": RACK, "operator": "In", "values": choices.some(RACKS)}
        case 9 if choices.has("custom"):
            result = choices.one(
                (
                    {"key": RACK, "operator": "Exists"},
                    {"key": RACK, "operator": "NotIn", "values": ["r1"]},
                    {"key": LEVEL, "operator": "Gt", "values": ["3"]},
                    {"key": TEAM, "operator": "DoesNotExist"},
                )
            )
        case 10 if choices.has("custom"):
            result = {"key": SIZE, "operator": "Exists"}
        case _:
            result = {"key": OS, "operator": "In", "values": ["linux"]}
    may_have = result["key"] in {ZONE, INSTANCE_TYPE, FAMILY, CAPACITY_TYPE}
    if may_have and choices.chance(35, "min_values"):
        most = len(result["values"]) if result["operator"] == "In" else 3
        result["minValues"] = choices.number(1, most)
    return result


def _either(choices, key, values):
    if len(values) > 1 and choices.chance(30):
        return {"key": key, "operator": "NotIn", "values": choices.some(values, most=1)}
    return {"key": key, "operator": "In", "values": choices.some(values)}


# -- Nodes and NodeClaims --------------------------------------------------------------------------


def nodes_and_claims(choices, pools, types):
    """Draw existing and launching nodes: Nodes, NodeClaims and CSINodes."""
    nodes, claims, csi_nodes = [], [], []
    for number in range(choices.number(1, 4)):
        name = f"node-{number}"
        if choices.chance(25):
            nodes.append(_foreign_node(choices, name))
        else:
            claim, node = _node_and_claim(choices, name, choices.one(pools), choices.one(types))
            claims.append(claim)
            if node is not None:
                nodes.append(node)
        has_node = bool(nodes) and nodes[-1]["metadata"]["name"] == name
        if has_node and choices.chance(60, "volumes"):
            csi_nodes.append(_csi_node(choices, name))
    return nodes, claims, csi_nodes


def _foreign_node(choices, name):
    """Draw a Node that no NodePool knows."""
    amounts = {
        "cpu": choices.one(("1", "2", "4")), "memory": choices.one(("1Gi", "4Gi")), "pods": "10",
    }  # fmt: skip
    labels = {HOSTNAME: name, ARCH: "amd64", OS: "linux"}
    if choices.chance(80):
        labels[ZONE] = choices.one(ZONES)
    if choices.chance(30, "custom"):
        labels[choices.one((TEAM, RACK))] = choices.one(("blue", "r1"))
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "spec": {"providerID": f"foreign://{name}"},
        "status": _node_status(amounts, amounts),
    }
    if choices.chance(25, "taints"):
        node["spec"]["taints"] = [choices.one(_TAINTS)]
    elif choices.chance(10):
        node["spec"]["unschedulable"] = True
        node["spec"]["taints"] = [
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        ]
    return node


def _node_status(capacity, allocatable):
    return {
        "capacity": capacity,
        "allocatable": allocatable,
        "conditions": [{"type": "Ready", "status": "True"}],
    }


def _node_and_claim(choices, name, pool, it):
    """Draw a NodeClaim of a pool, and its Node unless it is still to come."""
    offering = choices.one(it["offerings"])
    resources = it["resources"]
    allocatable = {
        **resources,
        "cpu": f"{int(resources['cpu']) * 1000 - 100}m",
        "memory": str(int(resources["memory"][:-2]) * GIB - 10 * 2**20),
    }
    pool_name, template = pool["metadata"]["name"], pool["spec"]["template"]
    labels = {
        **template["metadata"]["labels"],
        POOL: pool_name,
        "karpenter.kwok.sh/kwoknodeclass": "default",
        INSTANCE_TYPE: it["name"],
        ARCH: it["architecture"],
        OS: "linux",
        FAMILY: it["name"].split("-")[0],
        SIZE: resources["cpu"],
        CORES: resources["cpu"],
        "karpenter.kwok.sh/instance-memory": resources["memory"],
        **{r["key"]: r["values"][0] for r in offering["Requirements"]},
    }
    labels |= _decided(choices, template["spec"]["requirements"])
    stage = choices.one(("flying", "starting", "ready", "ready", "ready"))
    if not choices.has("in_flight"):
        stage = "ready"
    goes = choices.chance(25, "deleting")
    claim = _claim(name, pool, labels, capacity=resources, allocatable=allocatable)
    if goes:
        claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:10:00Z"
    conditions = ["Launched"]
    if stage == "flying":
        claim["status"]["conditions"] = _true(*conditions)
        return claim, None
    conditions.append("Registered")
    taints = list(template["spec"].get("taints", ()))
    node_labels = {**labels, HOSTNAME: name, "karpenter.sh/registered": "true"}
    if stage == "starting":
        taints += template["spec"].get("startupTaints", ())
        if choices.chance(70):
            taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    else:
        node_labels["karpenter.sh/initialized"] = "true"
        conditions.append("Initialized")
        if choices.chance(10, "taints"):
            taints.append({"key": "example.com/starting", "effect": "NoSchedule"})
    claim["status"] |= {"nodeName": name, "conditions": _true(*conditions)}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": node_labels,
            "finalizers": ["karpenter.sh/termination"],
        },
        "spec": {"providerID": f"kwok://{name}", "taints": taints},
        "status": _node_status(resources, allocatable),
    }
    if goes and choices.chance(50):
        node["metadata"]["deletionTimestamp"] = "2026-01-01T00:10:00Z"
        taints.append({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"})
    return claim, node


def _claim(name, pool, labels, *, capacity, allocatable):
    template = pool["spec"]["template"]["spec"]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "uid": f"uid-claim-{name}",
            "labels": labels,
            "finalizers": ["karpenter.sh/termination"],
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "nodeClassRef": NODE_CLASS,
            "requirements": template["requirements"],
            "expireAfter": "Never",
            "resources": {},
            **{key: template[key] for key in ("taints", "startupTaints") if key in template},
        },
        "status": {
            "providerID": f"kwok://{name}",
            "capacity": capacity,
            "allocatable": allocatable,
        },
    }


def _decided(choices, requirements):
    """Choose values for the labels that a pool leaves open."""
    labels = {}
    for requirement in requirements:
        if requirement["key"] in {TEAM, RACK} and requirement["operator"] == "In":
            labels[requirement["key"]] = choices.one(requirement["values"])
    return labels


def _true(*conditions):
    return [
        {
            "type": condition,
            "status": "True",
            "reason": condition,
            "message": "",
            "lastTransitionTime": "2026-01-01T00:01:00Z",
        }
        for condition in conditions
    ]


def _csi_node(choices, name):
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {
            "drivers": [
                {
                    "name": "disk.example.com",
                    "nodeID": name,
                    "topologyKeys": [],
                    "allocatable": {"count": choices.number(1, 2)},
                }
            ]
        },
    }
