"""Draws random pods (bound, pending, of DaemonSets) and their volumes."""

from __future__ import annotations

import copy

from tests.peer.choices import (
    ARCH,
    CAPACITY_TYPE,
    CORES,
    FAMILY,
    HOSTNAME,
    INSTANCE_TYPE,
    LEVEL,
    NAMESPACES,
    OS,
    POOL,
    RACK,
    RACKS,
    TEAM,
    TEAMS,
    ZONE,
    ZONES,
)

APPS = ("web", "db", "cache")
TIERS = ("front", "back")
DRIVER = "disk.example.com"


def namespaces():
    """Return the namespaces, one of them with a label."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in (
            ("default", {"kubernetes.io/metadata.name": "default"}),
            ("shop", {"kubernetes.io/metadata.name": "shop", "kind": "sales"}),
        )
    ]


# -- volumes ---------------------------------------------------------------------------------------


def storage(choices):
    """Return StorageClasses, PersistentVolumes and claims; pods name the claims."""
    if not choices.has("volumes"):
        return {}
    zones = choices.some(ZONES)
    term = {"matchLabelExpressions": [{"key": ZONE, "values": zones}]}
    classes = [
        _storage_class("plain"),
        _storage_class("zonal", allowedTopologies=[term]),
        _storage_class(
            "terms",
            allowedTopologies=[
                {"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}
                for zone in choices.some(ZONES, least=2)
            ],
        ),
        _storage_class("at-once", volumeBindingMode="Immediate"),
        _storage_class("old", provisioner="kubernetes.io/aws-ebs"),
    ]
    volumes = [
        _volume("pv-z1", [[(ZONE, "In", ["z1"])]]),
        _volume("pv-z2", [[("failure-domain.beta.kubernetes.io/zone", "In", ["z2"])]]),
        _volume("pv-two", [[(ZONE, "In", ["z2"])], [(ZONE, "In", ["z3"])]]),
        _volume("pv-anywhere", []),
        _volume("pv-local", [[(HOSTNAME, "In", ["node-0"])]], local=True),
        _volume("pv-mixed", [[(HOSTNAME, "In", ["gone"]), (ZONE, "In", ["z1"])]], local=True),
    ]
    claims = []
    for namespace in NAMESPACES:
        claims += [
            *(_volume_claim(namespace, kind, kind) for kind in ("plain", "zonal", "terms", "old")),
            _volume_claim(namespace, "at-once", "at-once"),
            _volume_claim(namespace, "homeless", "no-such-class"),
            _volume_claim(namespace, "lost", "plain", phase="Lost"),
            *(_volume_claim(namespace, f"disk-{n}", "plain") for n in range(3)),
            *(
                _volume_claim(namespace, f"on-{v}", "plain", volume=v)
                for v in ("pv-z1", "pv-z2", "pv-two", "pv-anywhere", "pv-local", "pv-mixed")
            ),
            _volume_claim(namespace, "on-nothing", "plain", volume="pv-gone"),
        ]
    return {
        "storageClasses": classes,
        "persistentVolumes": volumes,
        "persistentVolumeClaims": claims,
    }


def _storage_class(name, **fields):
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer",
        **fields,
    }


def _volume(name, terms, *, local=False):
    source = {"local": {"path": "/data"}} if local else {"csi": _csi(name)}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source}
    if terms:
        spec["nodeAffinity"] = {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [_expression(*parts) for parts in term]} for term in terms
                ]
            }
        }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
    }


def _csi(name):
    return {"driver": DRIVER, "volumeHandle": name}


def _volume_claim(namespace, name, storage_class, *, volume=None, phase=None):
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": storage_class,
        },
        "status": {"phase": phase or ("Bound" if volume else "Pending")},
    }
    if volume:
        claim["spec"]["volumeName"] = volume
        claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    return claim


def _volumes(choices):
    names = (
        "plain", "zonal", "terms", "old", "disk-0", "disk-1", "disk-2", "on-pv-z1", "on-pv-z2",
        "on-pv-two", "on-pv-anywhere", "on-pv-local", "on-pv-mixed",
    )  # fmt: skip
    claims = choices.some(names, most=2)
    if choices.chance(15):
        claims = [choices.one(("at-once", "homeless", "lost", "on-nothing", "no-such-claim"))]
    return [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}}
        for number, claim in enumerate(claims)
    ]


# -- pods ------------------------------------------------------------------------------------------


def template(choices):  # noqa: C901 - one line for each kind of constraint
    """Draw what the pods of one workload have in common: labels, namespace and spec."""
    labels = {"app": choices.one(APPS)}
    if choices.chance(50):
        labels["tier"] = choices.one(TIERS)
    if choices.chance(30):
        labels["version"] = choices.one(("1", "2"))
    spec = {"containers": [_container(choices, "app")]}
    if choices.chance(20):
        spec["containers"].append(_container(choices, "side"))
    if choices.chance(15, "ports"):
        spec["containers"][0]["ports"] = [_port(choices)]
    if choices.chance(25, "init"):
        spec["initContainers"] = _init_containers(choices)
    if choices.chance(10, "init"):
        spec["resources"] = {"requests": choices.one(({"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}))}
    if choices.chance(10, "overhead"):
        spec["overhead"] = {"cpu": "250m", "memory": "64Mi"}
    if choices.chance(25):
        spec["nodeSelector"] = _node_selector(choices)
    affinity = _affinity(choices, labels)
    if affinity:
        spec["affinity"] = affinity
    if choices.chance(40, "taints"):
        spec["tolerations"] = _tolerations(choices)
    if choices.chance(35, "spread"):
        spec["topologySpreadConstraints"] = [
            _spread(choices, labels) for _ in range(choices.one((1, 1, 2)))
        ]
    if choices.chance(25, "volumes"):
        spec["volumes"] = _volumes(choices)
    return {"namespace": choices.one(("default", *NAMESPACES)), "labels": labels, "spec": spec}


CPUS = ("50m", "100m", "250m", "500m", "900m", "1", "1500m", "2", "3", "4")
MEMORIES = ("16Mi", "128Mi", "512Mi", "1Gi", "3Gi")


def _container(choices, name):
    requests = {"cpu": choices.one(CPUS), "memory": choices.one(MEMORIES)}
    match choices.number(0, 39):
        case 0:
            requests["example.com/gpu"] = "1"
        case 1:
            requests = {}
        case 2:
            requests["cpu"] = "15"
        case 3:
            requests["example.com/unknown"] = choices.one(("0", "1"))
        case 4:
            requests["ephemeral-storage"] = choices.one(("1Gi", "100Gi"))
        case 5:
            requests["hugepages-2Mi"] = "256Mi"
            return {"name": name, "resources": {"requests": requests, "limits": dict(requests)}}
        case 6:
            return {"name": name, "resources": {"limits": requests}}
    return {"name": name, "image": name, "resources": {"requests": requests}}


def _init_containers(choices):
    results = []
    for number in range(choices.number(1, 2)):
        container = _container(choices, f"init-{number}")
        if choices.chance(50):
            container["restartPolicy"] = "Always"
        results.append(container)
    return results


def _port(choices):
    port = {"containerPort": 80, "hostPort": choices.one((8080, 8080, 9090)), "protocol": "TCP"}
    if choices.chance(20):
        port["protocol"] = "UDP"
    if choices.chance(30):
        port["hostIP"] = choices.one(("10.0.0.1", "10.0.0.2", "0.0.0.0"))
    return port


def _node_selector(choices):
    if choices.chance(3):
        return {"example.com/unheard": "x"}
    key, values = choices.one(_SELECTIONS)
    return {key: choices.one(values)}


_SELECTIONS = (
    (ZONE, ZONES),
    (ZONE, ZONES),
    (ZONE, ZONES),
    (CAPACITY_TYPE, ("spot", "on-demand")),
    (ARCH, ("amd64", "amd64", "arm64")),
    (CAPACITY_TYPE, ("spot", "on-demand")),
    (OS, ("linux", "linux", "windows")),
    (TEAM, TEAMS),
    (RACK, RACKS),
    (LEVEL, ("2", "7")),
    (POOL, ("alpha", "beta")),
    (INSTANCE_TYPE, ("m-2", "m-4", "c-4")),
    (FAMILY, ("m", "r")),
    ("failure-domain.beta.kubernetes.io/zone", ZONES),
)


def _tolerations(choices):
    result = choices.some(_TOLERATIONS, most=2)
    return [dict(toleration) for toleration in result]


_TOLERATIONS = (
    {"key": "dedicated", "operator": "Exists"},
    {"key": "dedicated", "operator": "Equal", "value": "blue", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "green"},
    {"operator": "Exists"},
    {"key": "soft", "operator": "Exists"},
    {"key": "example.com/size", "operator": "Gt", "value": "3", "effect": "NoSchedule"},
    {"key": "example.com/size", "operator": "Lt", "value": "3", "effect": "NoSchedule"},
    {"key": "example.com/starting", "operator": "Exists", "effect": "NoSchedule"},
)


# -- affinity --------------------------------------------------------------------------------------


def _affinity(choices, labels):
    affinity = {}
    node = {}
    if choices.chance(25, "terms"):
        node[_REQUIRED] = {
            "nodeSelectorTerms": [_node_term(choices) for _ in range(choices.one((1, 1, 2, 3)))]
        }
    if choices.chance(25, "preferences"):
        node[_PREFERRED] = [
            {"weight": choices.number(1, 100), "preference": _node_term(choices)}
            for _ in range(choices.number(1, 2))
        ]
    if node:
        affinity["nodeAffinity"] = node
    for name, feature, often in (
        ("podAffinity", "affinity", 20),
        ("podAntiAffinity", "anti_affinity", 20),
    ):
        terms = {}
        if choices.chance(often, feature):
            terms[_REQUIRED] = [
                _pod_term(choices, labels) for _ in range(choices.one((1, 1, 1, 2)))
            ]
        if choices.chance(often // 2, feature) and choices.has("preferences"):
            terms[_PREFERRED] = [
                {"weight": choices.number(1, 100), "podAffinityTerm": _pod_term(choices, labels)}
                for _ in range(choices.one((1, 2)))
            ]
        if terms:
            affinity[name] = terms
    return affinity


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _expression(key, operator, values=()):
    result = {"key": key, "operator": operator}
    return result | ({"values": list(values)} if values else {})


def _node_term(choices):
    count = choices.one((1, 1, 2))
    return {"matchExpressions": [_node_expression(choices) for _ in range(count)]}


def _node_expression(choices):
    operator = choices.one(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in {"Gt", "Lt"}:
        return _expression(choices.one((CORES, CORES, LEVEL)), operator, [choices.one("1248")])
    key, values = choices.one(_SELECTIONS[:-1])
    if operator in {"In", "NotIn"}:
        return _expression(key, operator, choices.some(values, most=2))
    key = choices.one((key, TEAM, RACK, LEVEL))
    return _expression(key, operator)


def _pod_term(choices, labels):
    term = {
        "topologyKey": choices.one((HOSTNAME, HOSTNAME, ZONE, ZONE, CAPACITY_TYPE, RACK, ARCH)),
        "labelSelector": _label_selector(choices, labels),
    }
    match choices.number(0, 9):
        case 0:
            term["namespaces"] = choices.some(NAMESPACES)
        case 1:
            term["namespaceSelector"] = choices.one(({}, {"matchLabels": {"kind": "sales"}}))
        case 2:
            term |= {
                "namespaces": ["default"],
                "namespaceSelector": {"matchLabels": {"kind": "sales"}},
            }
        case _:
            pass
    return term


def _label_selector(choices, labels):
    match choices.number(0, 9):
        case 0:
            return {"matchLabels": {"app": choices.one(APPS)}}
        case 1:
            return {
                "matchExpressions": [
                    {"key": "app", "operator": "In", "values": choices.some(APPS, most=2)}
                ]
            }
        case 2:
            return {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}
        case 3:
            return {
                "matchExpressions": [
                    {"key": "tier", "operator": "NotIn", "values": [choices.one(TIERS)]}
                ]
            }
        case 4:
            return {}
        case _:
            key = choices.one(sorted(labels))
            return {"matchLabels": {key: labels[key]}}


def _spread(choices, labels):
    result = {
        "maxSkew": choices.one((1, 1, 1, 2)),
        "topologyKey": choices.one((HOSTNAME, ZONE, ZONE, CAPACITY_TYPE, RACK, ARCH)),
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": _label_selector(choices, labels),
    }
    if choices.chance(25, "preferences"):
        result["whenUnsatisfiable"] = "ScheduleAnyway"
    elif choices.chance(20):
        result["minDomains"] = choices.number(1, 4)
    if choices.chance(20):
        result["nodeAffinityPolicy"] = choices.one(("Honor", "Ignore"))
    if choices.chance(20):
        result["nodeTaintsPolicy"] = choices.one(("Honor", "Ignore"))
    if choices.chance(15):
        result["matchLabelKeys"] = choices.one((["version"], ["version", "missing"]))
    return result


# -- all pods --------------------------------------------------------------------------------------


def _pod(name, drawn, *, node=None, number=0):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": drawn["namespace"],
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "labels": dict(drawn["labels"]),
            "creationTimestamp": f"2026-01-01T00:{number % 60:02d}:00Z",
        },
        "spec": copy.deepcopy(drawn["spec"]),
    }
    if node is not None:
        pod["spec"]["nodeName"] = node
        pod["status"] = {"phase": "Running"}
    return pod


def pending_pods(choices, cluster, templates):
    """Draw pods that wait, a few of each workload."""
    pods = []
    for index, drawn in enumerate(templates):
        for copied in range(choices.one((1, 1, 2, 3, 5))):
            number = 1000 + choices.number(0, 8999) * 100 + len(pods)
            pod = _pod(f"p{index}-{copied}", drawn, number=number)
            if choices.chance(3, "volumes"):
                pod["spec"].setdefault("volumes", []).append(_ephemeral(pod, cluster))
            pods.append(pod)
    return pods


def _ephemeral(pod, cluster):
    """Return a volume whose claim the cluster has made already."""
    namespace, name = pod["metadata"]["namespace"], f"{pod['metadata']['name']}-own"
    cluster["persistentVolumeClaims"].append(_volume_claim(namespace, name, "zonal"))
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "zonal"}
    return {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


def bound_pods(choices, cluster, templates):
    """Draw pods that run on the Nodes; now and then more than a Node has room for."""
    pods = []
    for node in cluster["nodes"]:
        for _ in range(choices.number(0, 3)):
            drawn = choices.one((*templates, template(choices)))
            pod = _pod(f"b{len(pods)}", drawn, node=node["metadata"]["name"], number=len(pods))
            pod["spec"].pop("volumes", None)
            if choices.chance(20, "volumes"):
                pod["spec"]["volumes"] = [
                    {"name": "v", "persistentVolumeClaim": {"claimName": choices.one(_ATTACHED)}}
                ]
            if choices.chance(70):
                pod["spec"]["containers"] = [
                    {"name": "app", "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}}}
                ]
                pod["spec"].pop("initContainers", None)
            if choices.chance(8):
                pod["status"]["phase"] = choices.one(("Succeeded", "Failed"))
            if choices.chance(8):
                pod["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
            pods.append(pod)
    return pods


_ATTACHED = ("disk-0", "disk-1", "disk-2", "on-pv-anywhere")


def budgets(choices):
    """Draw a budget for one app."""
    allowed = choices.one((0, 1, "0%", "50%"))
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "few", "namespace": choices.one(NAMESPACES)},
            "spec": {
                "maxUnavailable": allowed,
                "selector": {"matchLabels": {"app": choices.one(APPS)}},
            },
        }
    ]


def daemon(choices, name):
    """Draw the pod of a DaemonSet."""
    spec = {"containers": [_container(choices, "agent")]}
    spec["containers"][0]["resources"] = {
        "requests": {"cpu": choices.one(("50m", "200m", "1")), "memory": "64Mi"}
    }
    if choices.chance(20, "ports"):
        spec["containers"][0]["ports"] = [_port(choices)]
    if choices.chance(25):
        spec["nodeSelector"] = _node_selector(choices)
    elif choices.chance(20, "terms"):
        spec["affinity"] = {
            "nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_node_term(choices)]}}
        }
    if choices.chance(50):
        spec["tolerations"] = choices.one(([{"operator": "Exists"}], _tolerations(choices)))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"agent": name}},
        "spec": spec,
    }
