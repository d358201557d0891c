"""Handwritten objects are completed for planning, or refused."""

from __future__ import annotations

import io
import json

import pytest

from tests.cli.inputs import POOL, node, pod, pool, write

STORAGE_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fast"},
    "provisioner": "disk.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}


@pytest.fixture
def plan(program, tmp_path, types_file):
    """Plan for a cluster by keys; returns the JSON and what was said beside it."""

    def run(**cluster):
        file = write(tmp_path / "cluster.json", cluster)
        shown = program(
            "plan", "--offline", file, "--instance-types-file", types_file, "-o", "json"
        )
        return json.loads(shown.out), shown.err

    return run


@pytest.fixture
def refusal(program, tmp_path, types_file):
    """Return the one line with which a cluster by keys is refused, after the file's name."""

    def run(**cluster):
        file = write(tmp_path / "cluster.json", cluster)
        shown = program(
            "plan", "--offline", file, "--instance-types-file", types_file, code=2
        )  # fmt: skip
        (line,) = shown.err.strip().splitlines()
        prefix = f"karpenter: {file}, document 1"
        assert line.startswith(prefix)
        return line.removeprefix(prefix).lstrip(",: ")

    return run


CONVERTS = "`karpenter convert` converts older manifests"


def bare(manifest):
    """Leave out what the key of a list says already."""
    return {name: manifest[name] for name in manifest if name not in {"apiVersion", "kind"}}


def placed(found):
    return sorted(pod for claim in found["nodeClaims"] for pod in claim["pods"])


def owned(manifest, name):
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": f"uid-{name}"}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


# -- files -----------------------------------------------------------------------------------------


def test_keys_are_case_insensitive(plan):
    """And absent lists may be null, as Go writes them."""
    result, _ = plan(NodePools=[POOL], PODS=[bare(pod("a"))], boundpods=None, Services=[])

    assert placed(result) == ["shop/a"]


def test_unknown_keys_of_a_cluster_document_are_ignored(plan):
    """Titles and settings of other tools; a list that is not read is mentioned."""
    result, said = plan(
        title="x", seed=0, expected={"nodes": 1}, truncated=False, instanceTypes=[{"name": "a"}],
        comment=None, nodePools=[POOL], pods=[pod("a")],
    )  # fmt: skip

    assert placed(result) == ["shop/a"]
    (line,) = said.strip().splitlines()
    assert line.endswith('document 1: field "instanceTypes": unknown, ignored')


def test_objects_under_other_keys_are_read_by_their_kind(plan):
    """None is lost because of the name of its list."""
    result, _ = plan(items=[POOL], pending=[pod("a")])

    assert placed(result) == ["shop/a"]


def test_node_classes_may_be_called_after_their_provider(plan):
    """In as many lists as there are providers; those of unknown ones are mentioned."""
    ours = {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
        "spec": {},
    }
    result, said = plan(
        kwokNodeClasses=[ours],
        OtherNodeClasses=[{**ours, "apiVersion": "example.com/v1", "kind": "OtherNodeClass"}],
        nodePools=[POOL],
        pods=[pod("a")],
    )

    assert placed(result) == ["shop/a"]
    assert said.strip() == "karpenter: note: ignored: 1 of kind OtherNodeClass"


def test_a_key_given_twice_is_refused(refusal):
    """In two spellings: none of the two lists may get lost."""
    assert 'field "Pods": is duplicated (as pods)' in refusal(pods=[], Pods=[])


def test_objects_come_from_standard_input_too(program, monkeypatch, types_file):
    """`kubectl get -o json | karpenter plan --offline -`."""
    listed = {"apiVersion": "v1", "kind": "List", "items": [POOL, pod("a")]}
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps(listed).encode()))
    monkeypatch.setattr("sys.stdin", stdin)

    shown = program("plan", "--offline", "-", "--instance-types-file", types_file, "-o", "json")

    assert placed(json.loads(shown.out)) == ["shop/a"]


def test_json_documents_may_follow_one_another(program, tmp_path, types_file):
    """As `jq` and audit logs write them; the name of the file does not matter."""
    file = tmp_path / "dump"
    file.write_text(f"{json.dumps(POOL)}\n{json.dumps(pod('a'))}\n")

    shown = program("plan", "--offline", file, "--instance-types-file", types_file, "-o", "json")

    assert placed(json.loads(shown.out)) == ["shop/a"]


def test_dates_in_yaml_are_texts(program, tmp_path, types_file):
    """A label like a date is a text, a creation time may be unquoted."""
    file = tmp_path / "pods.yaml"
    write(file, POOL)
    file.write_text(
        file.read_text()
        + """
---
apiVersion: v1
kind: Pod
metadata:
  name: a
  creationTimestamp: 2024-01-31T12:00:00Z
  labels: {release: 2024-01-31}
spec:
  containers: [{name: app}]
"""
    )

    shown = program("plan", "--offline", file, "--instance-types-file", types_file, "-o", "json")

    assert placed(json.loads(shown.out)) == ["default/a"]


def test_a_yaml_merge_key_is_no_duplicate(program, tmp_path, types_file):
    """Anchors and merge keys, as people write them to say things once."""
    file = tmp_path / "pods.yaml"
    write(file, POOL)
    file.write_text(
        file.read_text()
        + """
---
apiVersion: v1
kind: List
items:
- &a
  apiVersion: v1
  kind: Pod
  metadata: {name: a}
  spec: {containers: [{name: app}]}
- <<: *a
  metadata: {name: b}
"""
    )

    shown = program("plan", "--offline", file, "--instance-types-file", types_file, "-o", "json")

    assert placed(json.loads(shown.out)) == ["default/a", "default/b"]


# -- pods ------------------------------------------------------------------------------------------


def test_every_pod_without_a_node_has_an_outcome(plan):
    """Placed, or pending with a reason; ended and ending pods are ignored."""
    ended = {**pod("ended"), "status": {"phase": "Succeeded"}}
    ending = pod("ending", metadata={"deletionTimestamp": "2024-01-31T12:00:00Z"})
    nominated = {**pod("nominated"), "status": {"nominatedNodeName": "old"}}
    stale = {**pod("stale"), "status": {"nominatedNodeName": "gone"}}
    strange = {
        **pod("strange"),
        "status": {"phase": ["?"], "nominatedNodeName": {}, "conditions": 1},
    }
    result, _ = plan(
        nodePools=[POOL],
        nodes=[node("old", cpu="100m")],
        pods=[
            ended, ending, nominated, stale, strange, pod("free"), owned(pod("daemon"), "agent"),
            pod("gated", schedulingGates=[{"name": "example.com/hold"}]),
        ],
    )  # fmt: skip

    assert placed(result) == ["shop/free", "shop/stale", "shop/strange"]
    assert result["existingNodes"] == {"old": ["shop/nominated"]}
    assert set(result["unschedulable"]) == {"shop/daemon", "shop/gated"}
    assert result["unschedulable"]["shop/daemon"]["pools"] == {}


@pytest.mark.parametrize("amount", ["1e16", "1e99", "9223372036854775807"])
def test_a_request_beyond_every_node_is_insufficient_resources(plan, amount):
    """Its pod stays pending, in any number format; no other pod is affected."""
    containers = [
        {"name": n, "resources": {"requests": {"cpu": amount, "memory": amount}}} for n in "ab"
    ]
    result, _ = plan(
        nodePools=[POOL],
        nodes=[node("old", cpu=amount)],
        pods=[pod("huge", containers=containers), pod("huger", memory=amount), pod("a")],
    )  # fmt: skip

    assert result["existingNodes"] == {"old": ["shop/a"]}
    assert set(result["unschedulable"]) == {"shop/huge", "shop/huger"}


def test_pods_in_the_network_of_their_node_hold_the_ports_they_name(plan):
    """The API server makes host ports of them: two such pods share no node."""
    network = {"hostNetwork": True}
    ports = [{"name": "app", "ports": [{"containerPort": 8080}]}]
    result, _ = plan(
        nodePools=[POOL], pods=[bare(pod(name, **network, containers=ports)) for name in "ab"]
    )

    assert [claim["pods"] for claim in result["nodeClaims"]] == [["shop/a"], ["shop/b"]]


def test_empty_uids_are_generated(plan):
    """All pods of a hand-made file may carry the same empty UID."""
    result, _ = plan(
        nodePools=[POOL], pods=[pod("a", metadata={"uid": ""}), pod("b", metadata={"uid": ""})]
    )

    assert placed(result) == ["shop/a", "shop/b"]


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (
            {"pods": [pod("a", metadata={"uid": "1"}), pod("b", metadata={"uid": "1"})]},
            'pods[1]: field "metadata.uid": "1" is that of another object',
        ),
        ({"boundPods": [pod("a")]}, 'boundPods[0]: Pod "shop/a": spec.nodeName: missing'),
        ({"pods": [{**POOL}]}, 'pods[0]: field "kind": must be Pod, not NodePool'),
        (
            {"pods": [pod("a", metadata={"creationTimestamp": "yesterday"})]},
            'Pod "shop/a": metadata.creationTimestamp: must be a time with its zone',
        ),
        (
            {"pods": [pod("a", cpu="lots")]},
            'spec.containers[0].resources.requests.cpu: "lots" is no quantity',
        ),
        (
            {"pods": [pod("a", memory="-1Gi")]},
            "spec.containers[0].resources.requests.memory: must be zero or more, not -1Gi",
        ),
        (
            {"pods": [pod("a", metadata={"labels": {"app": "web", "version": 2}})]},
            'metadata.labels["version"]: must be a string, not an integer',
        ),
        (
            {"pods": [pod("a", tolerations="all")]},
            "spec.tolerations: must be an array, not a string",
        ),
        (
            {"pods": [pod("a", tolerations=[{"operator": "Equal"}])]},
            "spec.tolerations[0].operator: must be Exists when key is empty",
        ),
        (
            {"pods": [pod("a", topologySpreadConstraints=[{"maxSkew": 1}])]},
            "spec.topologySpreadConstraints[0].topologyKey: missing",
        ),
        (
            {"pods": [pod("a", topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "z"}])]},
            "spec.topologySpreadConstraints[0].maxSkew: must be above zero, not 0",
        ),
        (
            {
                "daemonSets": [
                    {
                        "metadata": {"name": "agent"},
                        "spec": {"template": bare(pod("x", tolerations=[{"effect": "Never", "operator": "Exists"}]))},
                    }
                ]
            },
            'DaemonSet "default/agent": spec.template.spec.tolerations[0].effect: must be one of',
        ),
        (
            {"daemonSetPods": [pod("agent", tolerations=[{"operator": "All", "key": "a"}])]},
            'daemonSetPods[0]: Pod "shop/agent": spec.tolerations[0].operator: must be one of',
        ),
        (
            {"daemonSetPods": [pod("agent", cpu="lots")]},
            'Pod "shop/agent": spec.containers[0].resources.requests.cpu: "lots" is no quantity',
        ),
        (
            {"daemonSetPods": [pod("agent", tolerations=1)]},
            'Pod "shop/agent": spec.tolerations: must be an array, not an integer',
        ),
        (
            {"pods": [{"metadata": {"name": 7}, "spec": {}}]},
            'pods[0]: field "metadata.name": must be a string, not an integer',
        ),
        (
            {"pods": [pod("a", priority=2**70)]},
            'Pod "shop/a": spec.priority: 1180591620717411303424 is too large a number',
        ),
        (
            {"pods": [pod("a", nodeSelector={"team": "\ud800"})]},
            'Pod "shop/a": spec.nodeSelector.team: "\\ud800" is no text',
        ),
        (
            {"nodePools": [pool(labels={"team": "\ud800"})]},
            'NodePool "general": spec.template.metadata.labels.team: "\\ud800" is no text',
        ),
        (
            {"kwokNodeClasses": [{"metadata": {"name": "default"}, "spec": {}}]},
            'kwokNodeClasses[0]: field "apiVersion": missing',
        ),
        ({"nodePools": POOL}, 'field "nodePools": must be a list'),
        ({"nodePools": [None]}, "nodePools[0]: is no Kubernetes object but null"),
        ({"nodePool": POOL}, 'field "nodePool": unknown; is "nodePools" meant?'),
        ({"nodePools": [], "podz": []}, 'field "podz": unknown; is "pods" meant?'),
        ({"first": POOL, "pods": []}, 'field "first": must be a list'),
        ({"pending": [bare(pod("a"))]}, 'pending[0]: field "apiVersion": missing'),
        ({}, "is empty; an object needs apiVersion and kind, a cluster has lists under keys"),
        ({"title": "x"}, 'field "title": unknown; an object needs apiVersion and kind'),
        ({"apiVersion": "v1", "metadata": {"name": "a"}}, 'field "kind": missing'),
        ({"pods": [{"metadata": {"name": "a"}}]}, 'Pod "default/a": spec: missing'),
        (
            {"nodes": [node("n", taints=[{"effect": "NoSchedule"}])]},
            'Node "n": spec.taints[0].key: missing',
        ),
        ({"nodePools": [pool(limits={"cpu": "lots"})]}, 'spec.limits.cpu: "lots" is no quantity'),
        (
            {"nodePools": [{**POOL, "apiVersion": "karpenter.sh/v1beta1"}]},
            f"apiVersion: must be karpenter.sh/v1, not karpenter.sh/v1beta1; {CONVERTS}",
        ),
        (
            {
                "apiVersion": "karpenter.sh/v1alpha5",
                "kind": "Provisioner",
                "metadata": {"name": "a"},
            },
            f'unknown kind "Provisioner" of karpenter.sh; {CONVERTS}',
        ),
    ],
)  # fmt: skip
def test_invalid_objects_are_refused_as_by_an_api_server(refusal, cluster, said):
    """With file, key, entry, object and field."""
    assert said in refusal(**cluster)


def test_unknown_fields_of_our_kinds_are_said_to_be_ignored(plan):
    """A typing error in a NodePool would otherwise be a limit that is none."""
    _, said = plan(nodePools=[pool(limit={"cpu": "1"})], pods=[pod("a")])

    assert 'NodePool "general": spec.limit: unknown field, ignored' in said


# -- nodes -----------------------------------------------------------------------------------------


def test_nodes_need_neither_provider_id_nor_labels(plan):
    """Nodes of a file take pods; capacity or allocatable is enough."""
    short = node("short", provider_id="", cpu="2")
    del short["status"]["capacity"]
    result, _ = plan(
        nodePools=[POOL],
        nodes=[short, node("ours", provider_id="", labels={"karpenter.sh/nodepool": "general"})],
        pods=[pod("a", cpu="1800m"), pod("b", cpu="900m")],
    )

    assert result["existingNodes"] == {"ours": ["shop/b"], "short": ["shop/a"]}


def test_nodes_count_against_the_limits_of_the_pool_they_are_labelled_with(plan):
    """With a NodeClaim or without."""
    full = node("ours", cpu="4", labels={"karpenter.sh/nodepool": "general"})
    result, _ = plan(
        nodePools=[pool(limits={"cpu": "5"})],
        nodes=[full],
        boundPods=[pod("runs", cpu="4", nodeName="ours")],
        pods=[pod("a")],
    )

    assert result["unschedulable"]["shop/a"]["pools"]["general"]["constraint"] == "limit"


def test_a_cordoned_node_takes_only_pods_that_tolerate_the_cordon(plan):
    """The cluster would have tainted it."""
    tolerant = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
    result, _ = plan(
        nodePools=[POOL],
        nodes=[node("old", unschedulable=True)],
        pods=[pod("a"), pod("b", tolerations=tolerant)],
    )

    assert placed(result) == ["shop/a"]
    assert result["existingNodes"] == {"old": ["shop/b"]}


def test_a_claim_that_names_its_node_is_that_node(plan):
    """Counted once, though the Node does not show the provider ID."""
    claim = {
        "metadata": {"name": "general-1", "labels": {"karpenter.sh/nodepool": "general"}},
        "spec": {"nodeClassRef": POOL["spec"]["template"]["spec"]["nodeClassRef"], "requirements": []},
        "status": {"nodeName": "ours", "providerID": "test://1"},
    }  # fmt: skip
    marks = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}
    labels = {"karpenter.sh/nodepool": "general", **marks}
    result, _ = plan(
        nodePools=[pool(limits={"nodes": "1"})],
        nodeClaims=[claim],
        nodes=[node("ours", provider_id="", labels=labels)],
        pods=[pod("a"), pod("b"), pod("c")],
    )

    assert result["existingNodes"] == {"ours": ["shop/a", "shop/b"]}
    assert result["unschedulable"]["shop/c"]["pools"]["general"]["constraint"] == "limit"


def test_a_claim_may_be_as_short_as_its_pool_allows(plan):
    """A claim without a Node has the resources of its types, or of its status."""
    claim = {
        "metadata": {"name": "general-1", "labels": {"karpenter.sh/nodepool": "general"}},
        "status": {
            "providerID": "test://1",
            "capacity": {"cpu": "2", "memory": "4Gi", "pods": "10"},
            "conditions": None,
        },
    }
    result, _ = plan(nodePools=[POOL], nodeClaims=[claim], pods=[pod("a"), pod("b", cpu="15")])

    assert result["existingNodes"] == {"general-1": ["shop/a"]}
    assert placed(result) == ["shop/b"]


def test_a_claim_without_a_pool_must_be_whole(refusal):
    """Its NodeClass is in no other object."""
    claim = {"metadata": {"name": "stray"}, "spec": {}}

    said = refusal(nodePools=[POOL], nodeClaims=[claim])

    assert said == 'nodeClaims[0]: NodeClaim "stray": spec.nodeClassRef: Required value'


def test_absent_fields_may_be_null(plan):
    """As Go writes what is empty."""
    empty = json.loads(json.dumps(POOL))
    empty["metadata"]["creationTimestamp"] = None
    empty["spec"] |= {"limits": None, "weight": None, "disruption": {"budgets": None}}
    empty["spec"]["template"]["spec"] |= {"requirements": None, "taints": None}
    short = node("old", labels=None)
    short["metadata"] |= {"creationTimestamp": None, "labels": None}
    short["spec"]["taints"] = None
    lone = pod("a", cpu="900m", tolerations=None, affinity={"nodeAffinity": None}, volumes=None)
    result, said = plan(nodePools=[empty], nodes=[short], pods=[lone, pod("b")])

    assert result["existingNodes"] == {"old": ["shop/a"]}
    assert placed(result) == ["shop/b"]
    assert said == ""


def test_pods_of_nodes_that_go_are_planned_for(plan):
    """They will need another place, unless a budget holds them back."""
    going = node("old", cpu="4")
    going["metadata"]["deletionTimestamp"] = "2024-01-31T12:00:00Z"
    budget = {
        "metadata": {"name": "held", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "held"}}, "maxUnavailable": 0},
    }
    result, _ = plan(
        nodePools=[POOL],
        nodes=[going],
        boundPods=[
            pod("a", nodeName="old"),
            pod("held", nodeName="old", metadata={"labels": {"app": "held"}}),
        ],
        podDisruptionBudgets=[budget],
    )

    assert placed(result) == ["shop/a"]


def test_a_probable_mistake_is_mentioned(plan):
    """Pods on undescribed nodes, a node that takes no pod, kinds that are not read."""
    silent = node("silent")
    del silent["status"]["allocatable"]["pods"]
    _, said = plan(
        nodePools=[POOL, pool("static", replicas=2)],
        nodes=[silent],
        boundPods=[pod("lost", nodeName="ghost")],
        deployments=[{"metadata": {"name": "web"}}],
        jobs=[{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}],
        priorityClasses=[{"metadata": {"name": "high"}}],
    )

    assert "1 pod bound to nodes that are not there: ghost" in said
    assert "says nothing of pods: silent; nothing fits there" in said
    assert "ignored: 1 of kind Deployment, 2 of kind Job; no pods are made of them" in said
    assert "ignored: 1 of kind PriorityClass\n" in said
    assert 'NodePool "static" is not used: it is static' in said


# -- daemons ---------------------------------------------------------------------------------------


def test_daemon_set_pods_stand_for_their_daemon_set(plan):
    """Of a DaemonSet and its pod, the pod has the requests; nothing counts twice."""
    daemon_set = {
        "metadata": {"name": "agent", "namespace": "shop"},
        "spec": {"template": {"spec": bare(pod("x", cpu="1500m"))["spec"]}},
    }
    result, _ = plan(
        nodePools=[POOL],
        daemonSets=[daemon_set],
        daemonSetPods=[owned(bare(pod("agent-x7", cpu="300m", nodeName="gone")), "agent")],
        pods=[pod("a", cpu="1500m")],
    )

    assert result["nodeClaims"][0]["instanceTypes"][0] == "small"


def test_daemon_sets_take_their_part_of_every_new_node(plan):
    """A daemon of another architecture takes nothing."""
    arm = {"kubernetes.io/arch": "arm64"}
    daemon_sets = [
        {
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"template": {"spec": bare(pod("x", cpu="1", **selector))["spec"]}},
        }
        for name, selector in (("agent", {}), ("other", {"nodeSelector": arm}))
    ]
    result, _ = plan(nodePools=[POOL], daemonSets=daemon_sets, pods=[pod("a", cpu="1500m")])

    assert result["nodeClaims"][0]["instanceTypes"] == ["medium", "large"]


def test_running_daemons_keep_their_reserved_resources(plan):
    """A node with its daemon on it has room for the rest."""
    result, _ = plan(
        nodePools=[POOL],
        nodes=[node("old", cpu="1")],
        boundPods=[owned(pod("agent-x7", cpu="300m", nodeName="old"), "agent")],
        daemonSetPods=[pod("agent", cpu="300m")],
        pods=[pod("a", cpu="700m")],
    )

    assert result["existingNodes"] == {"old": ["shop/a"]}


@pytest.mark.parametrize("provider", ["kwok", "nobody"])
def test_a_pool_of_an_unknown_provider_needs_a_catalogue(program, tmp_path, provider):
    """Its types are unknown; the refusal names the option."""
    ref = {"group": f"karpenter.{provider}.sh", "kind": "KWOKNodeClass", "name": "default"}
    file = write(tmp_path / "all.yaml", pool(template={"nodeClassRef": ref}), pod("a"))

    shown = program("plan", "--offline", file, code=0 if provider == "kwok" else 2)

    if provider == "nobody":
        where = f'{file}, document 1: NodePool "general": spec.template.spec.nodeClassRef'
        said = "no loaded provider serves KWOKNodeClass.karpenter.nobody.sh"
        assert shown.err.startswith(f"karpenter: {where}: {said}")
        assert shown.err.endswith("--instance-types-file gives such pools a catalogue\n")


# -- volumes and namespaces ------------------------------------------------------------------------


def test_claims_of_ephemeral_volumes_and_default_classes_are_derived(plan):
    """As the cluster makes the one and names the other."""
    default = {
        **bare(STORAGE_CLASS),
        "metadata": {
            "name": "fast",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "allowedTopologies": [
            {"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["z9"]}]}
        ],
    }
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    result, _ = plan(
        nodePools=[POOL],
        storageClasses=[default],
        persistentVolumeClaims=[{"metadata": {"name": "data", "namespace": "shop"}, "spec": {}}],
        pods=[
            pod("a", volumes=[volume]),
            pod("b", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]),
        ],
    )

    # Both are found, and both can only be made in a zone that nobody sells.
    assert result["nodeClaims"] == []
    assert set(result["unschedulable"]) == {"shop/a", "shop/b"}
    assert not any("not found" in why["message"] for why in result["unschedulable"].values())


def test_a_claim_with_a_volume_is_bound(plan):
    """The mark that only a cluster sets is not asked for."""
    volume = {
        "metadata": {"name": "disk"},
        "spec": {
            "csi": {"driver": "disk.example.com"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {
                                    "key": "topology.kubernetes.io/zone",
                                    "operator": "In",
                                    "values": ["z1"],
                                }
                            ]
                        }
                    ]
                }
            },
        },
    }
    claim = {"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "disk"}}
    result, _ = plan(
        nodePools=[POOL],
        persistentVolumes=[volume],
        persistentVolumeClaims=[claim],
        pods=[pod("a", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}])],
    )

    assert placed(result) == ["shop/a"]
    zones = [
        item["values"]
        for item in result["nodeClaims"][0]["requirements"]
        if item["key"] == "topology.kubernetes.io/zone"
    ]
    assert zones == [["z1"]]


def test_undescribed_namespaces_have_their_name_as_label(plan):
    """Affinity to pods of a namespace by its name works without the Namespace."""
    near = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "db"}},
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "data"}},
                }
            ]
        }
    }
    database = pod("db", nodeName="old", metadata={"namespace": "data", "labels": {"app": "db"}})
    result, _ = plan(
        nodePools=[POOL],
        nodes=[node("old", cpu="2"), node("aaa", cpu="2")],
        boundPods=[database],
        pods=[pod("web", affinity=near)],
    )

    assert result["existingNodes"] == {"old": ["shop/web"]}
