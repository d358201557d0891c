"""Bytes from the API server to views."""

from __future__ import annotations

import gc
import json
from datetime import UTC, datetime
from itertools import combinations
from typing import ClassVar

import msgspec
import pytest

from karpenter_core.api.base import CustomResource
from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.api.records import (
    HostPort,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Taint,
    Toleration,
    VolumeView,
)
from karpenter_core.errors import BadInputError, GoneError
from karpenter_core.kube import resources
from karpenter_core.kube.garbage_collector import gc_paused, tune_gc
from karpenter_core.kube.objects import view_from_manifest
from karpenter_core.kube.wire.codecs import NODE_POOLS, Codecs
from karpenter_core.kube.wire.kind_groups import KindGroup
from tests.kube.scripted import bookmark, event, node, node_pool, page

POD = b"""{
 "kind":"Pod","apiVersion":"v1",
 "metadata":{"name":"web-6d4b75cb6d-hx7rv","generateName":"web-6d4b75cb6d-","namespace":"shop",
  "uid":"5a1b","resourceVersion":"12345","creationTimestamp":"2026-03-01T10:00:00Z",
  "labels":{"app":"web","pod-template-hash":"6d4b75cb6d"},
  "annotations":{"kubernetes.io/limit-ranger":"set","karpenter.sh/do-not-disrupt":"true"},
  "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-6d4b75cb6d",
   "uid":"77","controller":true,"blockOwnerDeletion":true}],
  "managedFields":[{"manager":"kube-scheduler","operation":"Update","fieldsV1":{"f:x":{}}}]},
 "spec":{
  "volumes":[{"name":"kube-api-access-x7","projected":{"sources":[]}},
   {"name":"data","persistentVolumeClaim":{"claimName":"web-data"}},
   {"name":"scratch","ephemeral":{"volumeClaimTemplate":{"spec":{"storageClassName":"fast"}}}}],
  "containers":[{"name":"main","image":"nginx","ports":[{"containerPort":80,"protocol":"TCP"},
    {"containerPort":53,"hostPort":53,"protocol":"UDP"}],
   "env":[{"name":"A","value":"b"}],
   "resources":{"limits":{"memory":"128Mi"},"requests":{"cpu":"250m","memory":"128Mi"}}}],
  "restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst",
  "nodeSelector":{"disk":"ssd"},"serviceAccountName":"default","nodeName":"node-1",
  "affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
    {"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/arch","operator":"In","values":["arm64"]}]}]}},
   "podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":
    {"matchLabels":{"app":"web"}},"topologyKey":"kubernetes.io/hostname"}]}},
  "schedulerName":"default-scheduler",
  "tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],
  "priority":100,"priorityClassName":"high","topologySpreadConstraints":[{"maxSkew":1,
   "topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"web"}}}]},
 "status":{"phase":"Running","startTime":"2026-03-01T10:00:05Z","conditions":[
   {"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T10:00:04Z"},
   {"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T10:00:09Z"}],
  "containerStatuses":[{"name":"main","ready":true,"restartCount":0,"image":"nginx","imageID":"",
   "allocatedResources":{"cpu":"250m","memory":"128Mi"},
   "resources":{"limits":{"memory":"128Mi"},"requests":{"cpu":"250m","memory":"128Mi"}}}]}}"""


def instant(second):
    return datetime(2026, 3, 1, 10, 0, second, tzinfo=UTC)


def test_a_running_pod_is_read_whole():
    """Everything a decision reads, and nothing else."""
    pod = Codecs().for_kind(resources.PODS).decode(POD)
    shape = pod.shape
    assert (pod.uid, pod.key, pod.resource_version) == ("5a1b", "shop/web-6d4b75cb6d-hx7rv", 12345)
    assert (pod.node_name, pod.phase, pod.ready, pod.unschedulable) == (
        "node-1",
        "Running",
        True,
        False,
    )
    assert (pod.created, pod.scheduled_time, pod.start_time, pod.ready_time) == tuple(
        map(instant, (0, 4, 5, 9))
    )
    assert (shape.owner_kind, pod.owner_name, pod.owner_uid) == (
        "ReplicaSet",
        "web-6d4b75cb6d",
        "77",
    )
    assert shape.annotations == {"karpenter.sh/do-not-disrupt": "true"}
    assert shape.requests == {"cpu": 250, "memory": 2**27, "pods": 1}
    assert shape.limits == {"memory": 2**27, "pods": 1}
    assert shape.host_ports == (HostPort(port=53, protocol="UDP"),)
    assert shape.volumes == (
        VolumeView(name="data", claim_name="web-data"),
        VolumeView(name="scratch", ephemeral=True, storage_class="fast"),
    )
    arm = NodeSelectorRequirement(key="kubernetes.io/arch", operator="In", values=("arm64",))
    assert shape.required_node_terms == (NodeSelectorTerm(match_expressions=(arm,)),)
    (anti_affinity,) = shape.pod_anti_affinity
    assert anti_affinity.topology_key == "kubernetes.io/hostname"
    assert anti_affinity.selector == LabelSelector(match_labels={"app": "web"})
    (spread,) = shape.topology_spread
    assert (spread.max_skew, spread.node_affinity_policy, spread.node_taints_policy) == (
        1,
        "Honor",
        "Ignore",
    )
    assert shape.tolerations == (
        Toleration(
            key="node.kubernetes.io/not-ready",
            operator="Exists",
            effect="NoExecute",
            toleration_seconds=300,
        ),
    )
    assert (shape.priority, shape.priority_class_name) == (100, "high")


def changed(**edits):
    body = msgspec.json.decode(POD)
    for path, value in edits.items():
        *steps, leaf = path.split("__")
        place = body
        for step in steps:
            place = place[int(step)] if isinstance(place, list) else place[step]
        place[int(leaf) if isinstance(place, list) else leaf] = value
    return msgspec.json.encode(body)


def test_pods_of_one_template_share_their_shape():
    """Names, binding, status and unread volumes and annotations do not count."""
    codecs = Codecs()
    pods = codecs.for_kind(resources.PODS)
    first = pods.decode(POD)
    twin = pods.decode(
        changed(
            metadata__name="web-6d4b75cb6d-other",
            metadata__uid="other",
            metadata__annotations={"karpenter.sh/do-not-disrupt": "true", "z": "1"},
            spec__nodeName="",
            spec__volumes__0={"name": "kube-api-access-y8", "projected": {}},
            status={"phase": "Pending"},
        )
    )
    other = pods.decode(changed(spec__priority=7))
    assert twin.shape is first.shape
    assert other.shape is not first.shape
    assert len(codecs.shapes) == 2


def test_a_shape_is_kept_as_long_as_its_pods():
    """Shapes of apps that are gone are gone."""
    codecs = Codecs()
    held = codecs.for_kind(resources.PODS).decode(POD)
    assert len(codecs.shapes) == 1
    del held
    gc.collect()
    assert len(codecs.shapes) == 0


def test_a_resize_under_way_is_a_shape_of_its_own():
    """Until it is done it holds more than its template says."""
    codecs = Codecs()
    pods = codecs.for_kind(resources.PODS)
    settled = pods.decode(POD)
    status = msgspec.json.decode(POD)["status"]
    status["containerStatuses"][0]["resources"]["requests"]["cpu"] = "1"
    resizing = pods.decode(changed(status=status))
    assert settled.shape.requests["cpu"] == 250
    assert resizing.shape.requests["cpu"] == 1000


@pytest.mark.parametrize("api_version", ["apps/v1", "apps.example.com/v1"])
def test_daemon_pods_share_a_shape_across_nodes(api_version):
    """The field selector that pins each to its node is left out."""

    def daemon_pod(name):
        fields = [{"key": "metadata.name", "operator": "In", "values": [name]}]
        required = {"nodeSelectorTerms": [{"matchFields": fields}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        owner = {"apiVersion": api_version, "kind": "DaemonSet", "name": "d", "uid": "1"}
        return changed(
            metadata__uid=name, metadata__ownerReferences=[owner], spec__affinity=affinity
        )

    pods = Codecs().for_kind(resources.PODS)
    first, second = (pods.decode(daemon_pod(name)) for name in ("node-1", "node-2"))
    assert first.shape is second.shape
    assert first.is_daemon
    assert first.shape.required_node_terms == ()


def test_the_template_of_a_daemon_set_keeps_the_nodes_that_it_names():
    fields = [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    spec = {"containers": [{"name": "agent", "image": "agent"}], "affinity": affinity}
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d", "namespace": "default", "uid": "1", "resourceVersion": "1"},
        "spec": {"selector": {}, "template": {"spec": spec}},
    }

    daemon_set = Codecs().for_kind(resources.DAEMON_SETS).decode(msgspec.json.encode(body))

    (term,) = daemon_set.template.required_node_terms
    assert [each.values for each in term.match_fields] == [("node-1",)]


def test_a_daemon_pod_keeps_the_node_requirements_of_its_daemon_set():
    """The controller adds its field selector to every term of the DaemonSet's own."""
    arm = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
    fields = [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]
    required = {"nodeSelectorTerms": [{"matchExpressions": [arm], "matchFields": fields}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1"}

    pods = Codecs().for_kind(resources.PODS)
    daemon_pod = pods.decode(changed(metadata__ownerReferences=[owner], spec__affinity=affinity))

    (term,) = daemon_pod.shape.required_node_terms
    assert [each.key for each in term.match_expressions] == ["kubernetes.io/arch"]


def test_a_pending_pod_is_provisionable_by_its_condition():
    """The scheduler's verdict, not the phase."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    edits = {"spec__nodeName": "", "status": {"phase": "Pending", "conditions": [condition]}}
    assert Codecs().for_kind(resources.PODS).decode(changed(**edits)).is_provisionable
    condition["reason"] = "SchedulingGated"
    assert not Codecs().for_kind(resources.PODS).decode(changed(**edits)).is_provisionable


def test_a_node_is_read_in_fixed_units():
    """Amounts, taints, conditions."""
    manifest = node("node-1", providerID="kwok://1", taints=[{"key": "k", "effect": "NoSchedule"}])
    manifest["status"] = {
        "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
        "allocatable": {"cpu": "3920m", "memory": "15Gi"},
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posts status"}
        ],
        "nodeInfo": {"kubeletVersion": "v1.34.2", "osImage": "Ubuntu"},
    }
    view = view_from_manifest(manifest)
    assert view.kubelet_version == "v1.34.2"
    assert view.conditions[0].message == "posts status"
    assert view.capacity == {"cpu": 4000, "memory": 16 * 2**30, "pods": 110}
    assert view.allocatable == {"cpu": 3920, "memory": 15 * 2**30}
    assert view.taints == (Taint(key="k", effect="NoSchedule"),)
    assert (view.ready, view.provider_id) == ("True", "kwok://1")


def test_a_daemon_set_is_the_shape_of_its_pods():
    """Limits count as requests, which no API server has done for a template."""
    spec = {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]}
    view = view_from_manifest(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": "kube-system"},
            "spec": {"template": {"metadata": {"labels": {"app": "agent"}}, "spec": spec}},
        }
    )
    assert view.template.requests == {"cpu": 1000, "pods": 1}
    assert (view.template.namespace, view.template.owner_kind) == ("kube-system", "DaemonSet")
    assert view.template.labels == {"app": "agent"}


def test_container_ports_of_a_template_in_the_host_network_are_host_ports():
    """The API server sets `hostPort` in pods of the host network, and in no template of such pods."""
    ports = [{"containerPort": 9100}, {"containerPort": 80, "hostPort": 8080}]
    spec = {"hostNetwork": True, "containers": [{"name": "exporter", "ports": ports}]}
    view = view_from_manifest(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "exporter", "namespace": "kube-system"},
            "spec": {"template": {"spec": spec}},
        }
    )
    assert [each.port for each in view.template.host_ports] == [9100, 8080]


def test_budgets_keep_their_amounts_as_written():
    """A number and a percentage."""
    view = view_from_manifest(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": {"minAvailable": 1, "maxUnavailable": "50%", "selector": {}},
            "status": {"disruptionsAllowed": 3, "currentHealthy": 5, "desiredHealthy": 2},
        }
    )
    assert (view.min_available, view.max_unavailable, view.disruptions_allowed) == ("1", "50%", 3)
    assert (view.current_healthy, view.desired_healthy) == (5, 2)
    assert view.selector == LabelSelector()


def volume(**spec):
    return view_from_manifest(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": spec}
    )


def test_volumes_name_their_driver():
    """The CSI driver, also for migrated in-tree volumes; anything else counts against no limit."""
    assert volume(csi={"driver": "d", "volumeHandle": "h"}).driver == "d"
    assert volume(awsElasticBlockStore={"volumeID": "v"}).driver == "ebs.csi.aws.com"
    assert volume(azureDisk={"diskName": "d", "diskURI": "u"}).driver == "disk.csi.azure.com"
    assert volume(azureFile={"shareName": "s"}).driver == "file.csi.azure.com"
    assert volume(gcePersistentDisk={"pdName": "p"}).driver == "pd.csi.storage.gke.io"
    assert volume(cinder={"volumeID": "v"}).driver == "cinder.csi.openstack.org"
    assert volume(vsphereVolume={"volumePath": "p"}).driver == "csi.vsphere.vmware.com"
    assert volume(portworxVolume={"volumeID": "v"}).driver == "pxd.portworx.com"
    assert volume(nfs={"server": "s"}).driver == ""
    assert volume(local={"path": "/"}).is_local
    claimed = volume(csi={"driver": "d"}, claimRef={"namespace": "shop", "name": "data"})
    assert (claimed.claim, claimed.is_local) == ("shop/data", False)


def test_volumes_and_claims_say_what_must_match():
    wanted = view_from_manifest(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "shop"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "5Gi"}},
                "selector": {"matchLabels": {"tier": "fast"}},
                "volumeMode": "Block",
            },
        }
    )
    assert (wanted.requested_bytes, wanted.access_modes) == (5 * 2**30, ("ReadWriteOnce",))
    assert (wanted.volume_mode, wanted.selector.match_labels) == ("Block", {"tier": "fast"})
    offered = labelled_volume(
        {"tier": "fast"},
        accessModes=["ReadWriteOnce", "ReadOnlyMany"],
        capacity={"storage": "10G"},
        claimRef={"namespace": "shop", "name": "data", "uid": "u1"},
        storageClassName="disks",
        volumeMode="Block",
    )
    assert (offered.capacity_bytes, offered.labels) == (10**10, {"tier": "fast"})
    assert (offered.access_modes, offered.volume_mode) == (
        ("ReadWriteOnce", "ReadOnlyMany"),
        "Block",
    )
    assert (offered.storage_class, offered.claim, offered.claim_uid) == ("disks", "shop/data", "u1")
    plain = volume(csi={"driver": "d"})
    assert (plain.capacity_bytes, plain.volume_mode, plain.storage_class) == (0, "Filesystem", "")


def labelled_volume(labels, **spec):
    meta = {"name": "v", "labels": labels}
    return view_from_manifest(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}
    )


def test_place_labels_of_a_volume_hold_like_its_node_affinity():
    """The scheduler's plug-in VolumeZone compares these four labels with those of nodes."""
    labels = {
        "topology.kubernetes.io/zone": "z1__z2",
        "failure-domain.beta.kubernetes.io/region": "r1",
        "app": "db",
    }
    found = [
        [(each.key, each.operator, each.values) for each in term.match_expressions]
        for term in labelled_volume(labels, csi={"driver": "d"}).node_terms
    ]
    places = [
        ("failure-domain.beta.kubernetes.io/region", "In", ("r1",)),
        ("topology.kubernetes.io/zone", "In", ("z1", "z2")),
    ]
    assert found == [places]
    terms = [
        {"matchExpressions": [{"key": "rack", "operator": "In", "values": [rack]}]}
        for rack in ("a", "b")
    ]
    affinity = {"required": {"nodeSelectorTerms": terms}}
    both = labelled_volume(labels, csi={"driver": "d"}, nodeAffinity=affinity).node_terms
    assert [[each.key for each in term.match_expressions] for term in both] == [
        ["rack", *(key for key, _, _ in places)]
    ] * 2
    assert labelled_volume({"topology.kubernetes.io/zone": "z1__"}).node_terms == ()


def test_storage_kinds_are_read():
    """Claims, classes, limits and attachments."""
    claim = view_from_manifest(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data",
                "annotations": {
                    "pv.kubernetes.io/bind-completed": "yes",
                    "volume.kubernetes.io/selected-node": "web-1",
                },
            },
            "spec": {
                "volumeName": "v",
                "storageClassName": "",
                "accessModes": ["ReadWriteOncePod"],
            },
            "status": {"phase": "Bound"},
        }
    )
    assert (claim.volume_name, claim.storage_class, claim.bind_completed) == ("v", "", True)
    assert claim.is_exclusive
    assert claim.selected_node == "web-1"
    bare = view_from_manifest(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    )
    assert (bare.volume_name, bare.storage_class, bare.phase) == ("", None, "Pending")
    storage_class = view_from_manifest(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "gp2"},
            "provisioner": "kubernetes.io/aws-ebs",
            "allowedTopologies": [
                {"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}
            ],
        }
    )
    zone = NodeSelectorRequirement(key="zone", operator="In", values=("a", "b"))
    assert storage_class.provisioner == "ebs.csi.aws.com"
    assert storage_class.volume_binding_mode is None
    assert storage_class.allowed_topologies == (NodeSelectorTerm(match_expressions=(zone,)),)
    csi_node = view_from_manifest(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": "node-1"},
            "spec": {
                "drivers": [
                    {"name": "a", "nodeID": "1", "allocatable": {"count": 25}},
                    {"name": "b", "nodeID": "1", "allocatable": {}},
                    {"name": "c", "nodeID": "1"},
                ]
            },
        }
    )
    assert csi_node.limits == {"a": 25}
    attachment = view_from_manifest(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": "x"},
            "spec": {"nodeName": "node-1", "source": {"persistentVolumeName": "v"}},
        }
    )
    assert (attachment.node_name, attachment.volume_name) == ("node-1", "v")


class KWOKNodeClass(NodeClass):
    """A provider's kind."""

    resource: ClassVar[CustomResource] = CustomResource(
        group="karpenter.kwok.sh",
        version="v1alpha1",
        kind="KWOKNodeClass",
        plural="kwoknodeclasses",
        singular="kwoknodeclass",
    )


def test_node_classes_are_read_by_their_providers_models():
    """Given at construction."""
    view = view_from_manifest(
        {
            "apiVersion": "karpenter.kwok.sh/v1alpha1",
            "kind": "KWOKNodeClass",
            "metadata": {"name": "default"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        },
        Codecs([KWOKNodeClass]),
    )
    assert isinstance(view, KWOKNodeClass)
    assert view.status.conditions[0].status == "True"


def test_one_bad_pool_does_not_hide_the_others():
    """It is handed on with object, field and value."""
    bad = node_pool("bad", disruption={"consolidateAfter": "soon"})
    codec = Codecs().for_kind(NODE_POOLS)
    read = codec.decode_list(page([node_pool("a"), bad, node_pool("b")], 9, "token").body)
    assert [pool.name for pool in read.objects] == ["a", "b"]
    assert (read.resource_version, read.continue_token) == ("9", "token")
    (invalid,) = read.invalid
    assert (invalid.name, invalid.uid, invalid.resource_version) == ("bad", "uid-bad", "1")
    assert "spec.disruption.consolidateAfter" in str(invalid)
    assert "'soon'" in str(invalid)


def test_one_bad_node_does_not_hide_the_others():
    """The fast way gives up and each object is read by itself."""
    bad = node("bad", unschedulable="maybe")
    worse = node("worse") | {"status": {"capacity": {"cpu": "many"}}}
    codec = Codecs().for_kind(resources.NODES)
    read = codec.decode_list(page([node("a"), bad, worse, node("b")], 9).body)
    assert [view.name for view in read.objects] == ["a", "b"]
    assert [str(invalid) for invalid in read.invalid] == [
        'Node "bad": Expected `bool`, got `str` - at `$.spec.unschedulable`',
        'Node "worse": resource cpu: invalid quantity "many"',
    ]


def test_page_that_is_no_list_is_refused():
    """As a proxy's page."""
    with pytest.raises(BadInputError, match="list of nodes: no list in"):
        Codecs().for_kind(resources.NODES).decode_list(b"<html>")


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_watch_lines_carry_objects(kind):
    """Of view kinds and of ours, in whatever order the fields come."""
    codecs = Codecs()
    nodes, pools = codecs.for_kind(resources.NODES), codecs.for_kind(NODE_POOLS)
    seen = nodes.decode_event(event(kind, node("a", 7)))
    assert (seen.type, seen.object.name, seen.resource_version) == (kind, "a", "7")
    turned = msgspec.json.encode({"object": node("a", 7), "type": kind})
    assert nodes.decode_event(turned).object.name == "a"
    pool = pools.decode_event(event(kind, node_pool("web", 8)))
    assert (pool.type, pool.object.name, pool.resource_version) == (kind, "web", "8")


def test_watch_lines_carry_bookmarks_and_errors():
    """A bookmark moves the version only; 410 is distinguished from other errors."""
    nodes = Codecs().for_kind(resources.NODES)
    seen = nodes.decode_event(bookmark(12))
    assert (seen.type, seen.resource_version, seen.initial_events_end) == ("BOOKMARK", "12", False)
    assert nodes.decode_event(bookmark(12, initial=True)).initial_events_end
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    assert isinstance(nodes.decode_event(event("ERROR", status)).error, GoneError)
    other = nodes.decode_event(event("ERROR", status | {"code": 500, "reason": ""})).error
    assert (other.status, str(other)) == (500, "watch nodes: too old")
    assert not isinstance(other, GoneError)


@pytest.mark.parametrize("status", [{"code": 410}, {"reason": "Expired"}])
def test_a_watch_is_gone_by_code_or_by_reason(status):
    """Proxies and old servers say only one of both."""
    nodes = Codecs().for_kind(resources.NODES)
    line = event("ERROR", {"kind": "Status", "message": "too old", **status})
    assert isinstance(nodes.decode_event(line).error, GoneError)


def test_a_bad_object_in_a_watch_is_handed_on():
    """With its UID, so that its last good state can be kept."""
    nodes = Codecs().for_kind(resources.NODES)
    seen = nodes.decode_event(event("MODIFIED", node("a", 8, unschedulable="maybe")))
    assert seen.object is None
    assert (seen.invalid.uid, seen.resource_version) == ("uid-a", "8")
    with pytest.raises(BadInputError, match="no watch event"):
        nodes.decode_event(b'{"type":"ADDED","obj')


def test_manifests_get_the_defaults_of_the_api_server():
    """A UID, a namespace, and the scheduler's verdict on a pod that waits."""
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {}}
    waiting = view_from_manifest(manifest)
    assert (waiting.uid, waiting.key, waiting.is_provisionable) == (
        "pod/default/web",
        "default/web",
        True,
    )
    bound = view_from_manifest(manifest | {"spec": {"nodeName": "node-1"}})
    assert not bound.is_provisionable
    assert view_from_manifest(node_pool("web")).uid == "uid-web"


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({"kind": "Pot", "apiVersion": "v1", "metadata": {"name": "x"}}, 'Pot "x": kind: unknown'),
        (
            {"kind": "NodePool", "apiVersion": "karpenter.sh/v1beta1", "metadata": {"name": "x"}},
            "apiVersion: must be karpenter.sh/v1, not karpenter.sh/v1beta1",
        ),
        (
            {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {"name": "x"},
                "spec": {"priority": "h"},
            },
            r'Pod "default/x": .*`\$.spec.priority`',
        ),
        ({}, 'object "": kind: unknown'),
    ],
)
def test_a_bad_manifest_is_one_clear_error(manifest, message):
    """Naming object and field."""
    with pytest.raises(BadInputError, match=message):
        view_from_manifest(manifest)


def test_the_collector_rests_while_decoding():
    """Nested pauses end together, and a state of rest is kept."""
    assert gc.isenabled()
    with gc_paused():
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_tuning_the_collector_can_be_undone():
    """Thresholds of a long-running controller."""
    before = gc.get_threshold()
    undo = tune_gc()
    assert gc.get_threshold() == (50_000, 20, 50)
    undo()
    assert gc.get_threshold() == before


def selecting(kind, spec, api_version="apps/v1", groups=frozenset({KindGroup.SELECTORS})):
    manifest = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "7"},
        "spec": spec,
    }
    view = view_from_manifest(manifest, Codecs(groups=groups))
    assert (view.namespace, view.name, view.resource_version) == ("shop", "web", 7)
    return view


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
def test_workloads_are_read_by_their_selectors(kind):
    expression = {"key": "rev", "operator": "In", "values": ["1"]}
    selector = {"matchLabels": {"app": "web"}, "matchExpressions": [expression]}
    result = selecting(kind, {"selector": selector, "template": {"spec": {"containers": []}}})
    assert result.kind == kind
    assert result.selector == LabelSelector(
        match_labels={"app": "web"},
        match_expressions=(LabelSelectorRequirement(key="rev", operator="In", values=("1",)),),
    )


def test_replication_controllers_select_by_labels():
    result = selecting("ReplicationController", {"selector": {"app": "web"}}, "v1")
    assert (result.kind, result.selector) == (
        "ReplicationController",
        LabelSelector(match_labels={"app": "web"}),
    )


def test_services_may_select_or_not():
    assert selecting("Service", {"selector": {"app": "web"}}, "v1").selector == {"app": "web"}
    assert selecting("Service", {"type": "ExternalName"}, "v1").selector is None


KINDS_OF_GROUPS = {
    KindGroup.SELECTORS: "Service ReplicationController ReplicaSet StatefulSet",
    KindGroup.BUFFERS: "CapacityBuffer PodTemplate Deployment ReplicaSet StatefulSet",
    KindGroup.REQUESTS: "ProvisioningRequest PodTemplate",
    KindGroup.OVERLAYS: "NodeOverlay",
    KindGroup.QUOTAS: "CapacityQuota",
    KindGroup.AUTOSCALERS: "VerticalPodAutoscaler",
    KindGroup.DEVICES: "ResourceClaim ResourceClaimTemplate ResourceSlice DeviceClass",
}


@pytest.mark.parametrize("count", range(len(KindGroup) + 1))
def test_the_kinds_of_a_feature_are_followed_only_on_request(count):
    """Clusters have many of these, and most need none of them; no kind is read twice."""
    always = {kind.kind for kind in Codecs().kinds}
    for groups in combinations(KindGroup, count):
        codecs = Codecs(groups=set(groups))
        asked = {kind for group in groups for kind in KINDS_OF_GROUPS[group].split()}
        assert {kind.kind for kind in codecs.kinds} - always == asked
        for kind in {"ReplicaSet", "StatefulSet"} & asked:
            view = selecting(kind, {"template": {"spec": {"containers": []}}}, groups=groups)
            assert (view.template is not None) is (KindGroup.BUFFERS in groups)
        shape = view_from_manifest(json.loads(POD), codecs).shape
        assert (shape.request_parts is not None) is (KindGroup.AUTOSCALERS in groups)


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ([], ("", True)),
        ([{"kind": "Job", "controller": True}], ("Job", True)),
        ([{"kind": "Job"}], ("Job", False)),
        ([{"kind": "Job"}, {"kind": "ReplicaSet", "controller": True}], ("ReplicaSet", True)),
    ],
)
def test_a_pod_says_whether_its_owner_controls_it(owners, expected):
    references = [{"apiVersion": "x/v1", "name": "o", "uid": "u", **owner} for owner in owners]
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "ownerReferences": references},
        "spec": {"containers": []},
    }
    shape = view_from_manifest(manifest).shape
    assert (shape.owner_kind, shape.owner_controls) == expected


@pytest.mark.parametrize(("length", "cut"), [(98, False), (99, True)])
def test_a_long_value_that_is_wrong_is_cut_in_the_message(length, cut):
    """After a hundred characters, the quotes included."""
    pools = Codecs().for_kind(NODE_POOLS)
    wrong = node_pool("web", 8)
    wrong["spec"]["weight"] = "x" * length
    seen = pools.decode_event(event("ADDED", wrong)).invalid
    assert ("x" * 98 in seen.message, "…" in seen.message) == (True, cut)


@pytest.mark.parametrize(
    ("api_version", "kind", "spec"),
    [
        ("v1", "Pod", {}),
        ("v1", "Node", {}),
        ("v1", "Service", {}),
        ("v1", "ReplicationController", {}),
        ("v1", "PersistentVolumeClaim", {}),
        ("v1", "PersistentVolume", {}),
        ("apps/v1", "DaemonSet", {"selector": {}, "template": {"spec": {}}}),
        ("apps/v1", "ReplicaSet", {"selector": {}}),
        ("apps/v1", "StatefulSet", {"selector": {}}),
        ("policy/v1", "PodDisruptionBudget", {}),
        ("storage.k8s.io/v1", "CSINode", {"drivers": []}),
        (
            "storage.k8s.io/v1",
            "VolumeAttachment",
            {"attacher": "a", "nodeName": "n", "source": {}},
        ),
    ],
)
def test_a_manifest_that_no_server_has_seen_has_version_zero(api_version, kind, spec):
    manifest = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    codecs = Codecs(groups={KindGroup.SELECTORS})
    assert view_from_manifest(manifest, codecs).resource_version == 0
