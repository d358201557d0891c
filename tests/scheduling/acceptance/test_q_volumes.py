"""Cases 270 to 287: volumes, where they are, and how many a node attaches."""

from __future__ import annotations

import msgspec
import pytest

from karpenter_core.api.labels import HOSTNAME, ZONE
from karpenter_core.state.pod_volumes import UnsupportedVolumes
from tests.scheduling.acceptance.catalogues import (
    SPECIAL,
    default_pool,
    fake_type,
    incremental_types,
)
from tests.scheduling.acceptance.workloads import (
    claimed,
    csi_node,
    ephemeral,
    storage_class,
    term,
    volume,
    volume_claim,
)

FAST = "fast"
LOCAL = {"local": {"path": "/mnt/disk"}}
HOST_PATH = {"hostPath": {"path": "/mnt/disk"}}


def zones(*names):
    return {ZONE: names}


def with_claim(cluster, *objects, **options):
    """Create objects and a pod with a volume on the claim `claim`, and make a pass."""
    cluster.apply(*objects)
    pod = cluster.pod(volumes=[claimed("data", "claim")], **options)
    cluster.provision(pod)
    return pod


def with_ephemeral(cluster, *objects, of=FAST, to="", **options):
    """Create objects, a pod with an ephemeral volume, and the claim that is made for it."""
    pod = cluster.pod(volumes=[ephemeral("tmp", of)], **options)
    cluster.apply(*objects, volume_claim(f"{pod.name}-tmp", of=of, to=to))
    cluster.provision(pod)
    return pod


INVALID = {
    "no claim": [],
    "no class": [volume_claim("claim", of="missing")],
    "no volume": [volume_claim("claim", to="missing")],
}


@pytest.mark.parametrize("objects", INVALID.values(), ids=INVALID)
def test_case_270_a_missing_object_leaves_out_its_pod_alone(cluster, objects):
    cluster.apply(*objects)
    invalid = cluster.pod(volumes=[claimed("data", "claim")])
    cluster.provision(invalid)
    valid = cluster.pod()
    made = cluster.provision(valid)
    assert [item.pod.uid for item in made.asked.ignored] == [invalid.uid]
    assert not made.asked.ignored[0].silent
    assert cluster.is_unscheduled(invalid)
    assert cluster.is_scheduled(valid)


@pytest.mark.parametrize("name", ["", "missing"], ids=["empty", "missing"])
@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("kind", ["claim", "ephemeral"])
def test_case_271_a_storage_class_that_is_empty_or_missing(cluster, name, bound, kind):
    to = "volume" if bound else ""
    if kind == "claim":
        pod = with_claim(cluster, volume("volume"), volume_claim("claim", of=name, to=to))
    else:
        pod = with_ephemeral(cluster, volume("volume"), of=name, to=to)
    assert cluster.is_scheduled(pod) is bound


@pytest.mark.parametrize("kind", ["claim", "ephemeral"])
def test_case_272_the_zones_of_a_storage_class(cluster, kind):
    where = [(ZONE, "In", "z1", "z3")]
    fast = storage_class(FAST, zones("z2", "z3"))
    if kind == "claim":
        pod = with_claim(cluster, fast, volume_claim("claim", of=FAST), where=where)
    else:
        pod = with_ephemeral(cluster, fast, where=where)
    assert cluster.labels_of(pod)[ZONE] == "z3"


@pytest.mark.parametrize("kind", ["claim", "ephemeral"])
def test_case_272_a_zone_that_the_storage_class_does_not_have(cluster, kind):
    where = [(ZONE, "In", "z1")]
    fast = storage_class(FAST, zones("z2", "z3"))
    if kind == "claim":
        pod = with_claim(cluster, fast, volume_claim("claim", of=FAST), where=where)
    else:
        pod = with_ephemeral(cluster, fast, where=where)
    assert cluster.is_unscheduled(pod)


@pytest.mark.parametrize("kind", ["claim", "ephemeral"])
@pytest.mark.parametrize(("where", "zone"), [((), "z3"), ([(ZONE, "In", "z1")], None)])
def test_case_273_the_zone_of_a_bound_volume(cluster, kind, where, zone):
    objects = [storage_class(FAST, zones("z2", "z3")), volume("volume", [(ZONE, "In", "z3")])]
    if kind == "claim":
        claim = volume_claim("claim", of=FAST, to="volume")
        pod = with_claim(cluster, *objects, claim, where=where)
    else:
        pod = with_ephemeral(cluster, *objects, to="volume", where=where)
    if zone is None:
        assert cluster.is_unscheduled(pod)
    else:
        assert cluster.labels_of(pod)[ZONE] == zone


@pytest.mark.parametrize(
    ("source", "scheduled"),
    [(LOCAL, True), (HOST_PATH, True), (None, False)],
    ids=["local", "host path", "csi"],
)
@pytest.mark.parametrize("kind", ["claim", "ephemeral"])
def test_case_274_the_host_of_a_local_volume_is_not_waited_for(cluster, source, scheduled, kind):
    pinned = volume("volume", [(HOSTNAME, "In", "some-host")], source=source)
    local = storage_class(FAST, provisioner="kubernetes.io/no-provisioner")
    if kind == "claim":
        claim = volume_claim("claim", of=FAST, to="volume")
        pod = with_claim(cluster, local, pinned, claim)
    else:
        pod = with_ephemeral(cluster, local, pinned, to="volume")
    assert cluster.is_scheduled(pod) is scheduled


APP = {"app": "multi-zone"}


def averse_pods(cluster, *claims):
    """Make pods that want no other of them in their zone, each on a claim, and make a pass."""
    pods = [
        cluster.pod(labels=APP, away=[term(APP, ZONE)], volumes=[claimed("data", name)])
        for name in claims
    ]
    cluster.provision(*pods)
    return pods


def test_case_275_a_volume_that_is_in_either_of_two_zones(cluster):
    terms = [[(ZONE, "In", "z1")], [(ZONE, "In", "z2")]]
    for number in (0, 1):
        cluster.apply(
            volume(f"volume-{number}", *terms),
            volume_claim(f"claim-{number}", to=f"volume-{number}"),
        )
    pods = averse_pods(cluster, "claim-0", "claim-1")
    assert sorted(cluster.labels_of(pod)[ZONE] for pod in pods) == ["z1", "z2"]


@pytest.mark.parametrize("source", [LOCAL, HOST_PATH], ids=["local", "host path"])
def test_case_276_a_term_of_nothing_but_the_host_leaves_the_volume_free(cluster, source):
    terms = [[(HOSTNAME, "In", "existing-host")], [(ZONE, "In", "invalid")]]
    pod = with_claim(
        cluster, volume("volume", *terms, source=source), volume_claim("claim", to="volume")
    )
    assert cluster.is_scheduled(pod)


def test_case_277_a_storage_class_with_two_topologies(cluster):
    cluster.apply(
        storage_class(FAST, zones("z1"), zones("z2")),
        volume_claim("claim-0", of=FAST),
        volume_claim("claim-1", of=FAST),
    )
    pods = averse_pods(cluster, "claim-0", "claim-1")
    assert sorted(cluster.labels_of(pod)[ZONE] for pod in pods) == ["z1", "z2"]


def test_case_278_two_volumes_meet_where_they_can(cluster):
    cluster.use(default_pool(), types=incremental_types(5))
    cluster.apply(
        storage_class("a", {SPECIAL: ["required"]}, {SPECIAL: ["optional"]}),
        storage_class(
            "b",
            {ZONE: ["z1"], SPECIAL: ["optional"]},
            {ZONE: ["z2"], SPECIAL: ["required"]},
        ),
        volume_claim("claim-a", of="a"),
        volume_claim("claim-b", of="b"),
    )
    pod = cluster.pod(volumes=[claimed("a", "claim-a"), claimed("b", "claim-b")])
    cluster.provision(pod)
    assert cluster.labels_of(pod)[ZONE] == "z1"
    assert cluster.labels_of(pod)[SPECIAL] == "optional"


def roomy(cluster, **limits):
    """Have one node that boots and attaches so many volumes, with room for very many pods."""
    huge = fake_type("instance-type", "1024", "4Gi", "1024")
    cluster.use(default_pool(limits={}), types=[huge])
    cluster.provision(cluster.pod())
    (node,) = cluster.nodes
    cluster.apply(csi_node(node.name, **limits))
    return node


def test_case_279_volumes_beyond_the_attach_limit_of_a_node(cluster):
    roomy(cluster, fake__csi__provider=10)
    cluster.apply(storage_class(FAST, zones("z1")))
    pods = []
    for number in range(6):
        names = [f"claim-{letter}-{number}" for letter in "ab"]
        cluster.apply(*(volume_claim(name, of=FAST) for name in names))
        pods += cluster.pods(1, volumes=[claimed(name, name) for name in names])
    cluster.provision(*pods)
    assert cluster.is_scheduled(*pods)
    assert len(cluster.nodes) == 2


def test_case_280_a_volume_that_many_share_is_attached_once(cluster):
    roomy(cluster, fake__csi__provider=10)
    cluster.apply(
        storage_class(FAST, zones("z1")),
        volume("volume", [(ZONE, "In", "z1")]),
        volume_claim("claim", of=FAST, to="volume"),
    )
    pods = cluster.pods(100, volumes=[claimed("data", "claim")])
    cluster.provision(*pods)
    assert cluster.is_scheduled(*pods)
    assert len(cluster.nodes) == 1


def test_case_281_volumes_without_a_driver_are_not_counted(cluster):
    roomy(cluster, fake__csi__provider=1)
    nfs = {"nfs": {"server": "fake.server", "path": "/some/path"}}
    cluster.apply(
        volume("volume", [(ZONE, "In", "z1")], source=nfs),
        volume_claim("claim", of="", to="volume"),
    )
    pods = cluster.pods(5, volumes=[claimed("a", "claim"), claimed("b", "claim")])
    cluster.provision(*pods)
    assert cluster.is_scheduled(*pods)
    assert len(cluster.nodes) == 1


@pytest.mark.parametrize(
    ("asked", "resolved"),
    [(FAST, FAST), (None, "default"), (None, "newer-default")],
    ids=["named", "default", "newest default"],
)
def test_case_282_ephemeral_volumes_count_for_the_driver_of_their_class(cluster, asked, resolved):
    """The API server sets the default class on the claim."""
    node = roomy(cluster, fake__csi__provider=1, other=10)
    other = [storage_class(n, zones("z1"), provisioner="other") for n in ("older-default",)]
    cluster.apply(storage_class(resolved, zones("z1")), *other)
    places = []
    for _ in range(2):
        pod = cluster.pod(volumes=[ephemeral("tmp", asked)])
        cluster.apply(volume_claim(f"{pod.name}-tmp", of=resolved))
        cluster.provision(pod)
        places.append(cluster.node_of(pod).name)
    assert places[0] == node.name
    assert places[1] != node.name


UNSUPPORTED = {
    "class": [
        storage_class(FAST, zones("z1"), provisioner="other-provider"),
        volume_claim("claim", of=FAST),
    ],
    "bound": [
        volume("volume", source={"csi": {"driver": "other-provider", "volumeHandle": "x"}}),
        volume_claim("claim", of=FAST, to="volume"),
    ],
    "topology key": [
        storage_class(FAST, {"topology.ebs.csi.aws.com/zone": ["us-west-2a", "us-west-2b"]}),
        volume_claim("claim", of=FAST),
    ],
}


@pytest.mark.parametrize("objects", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_case_283_volumes_that_no_node_can_mount(cluster, objects):
    cluster.unsupported_volumes = UnsupportedVolumes(
        topology_keys=frozenset({"topology.ebs.csi.aws.com/zone"}),
        provisioners=frozenset({"other-provider"}),
    )
    pod = with_claim(cluster, *objects)
    assert cluster.is_unscheduled(pod)
    assert [item.pod.uid for item in cluster.passes[-1].asked.ignored] == [pod.uid]


USELESS = {
    "immediate": [
        storage_class(FAST, zones("z1"), mode="Immediate"),
        volume_claim("claim", of=FAST),
    ],
    "deleted claim": [
        storage_class(FAST, zones("z1")),
        volume_claim("claim", of=FAST, deleted=True),
    ],
    "deleted volume": [
        volume("volume", [(ZONE, "In", "z1")], deleted=True),
        volume_claim("claim", of=FAST, to="volume"),
    ],
    "lost": [storage_class(FAST, zones("z1")), volume_claim("claim", of=FAST, phase="Lost")],
}


@pytest.mark.parametrize("objects", USELESS.values(), ids=USELESS)
def test_case_284_claims_that_are_of_no_use(cluster, objects):
    assert cluster.is_unscheduled(with_claim(cluster, *objects))


@pytest.mark.parametrize("completed", [True, False])
def test_case_285_a_volume_name_is_not_a_binding(cluster, completed):
    pod = with_claim(
        cluster,
        storage_class(FAST, zones("z1")),
        volume("volume"),
        volume_claim("claim", of=FAST, to="volume", completed=completed),
    )
    assert cluster.is_scheduled(pod) is completed


@pytest.mark.parametrize("of", ["", "missing", None])
def test_case_286_running_pods_with_invalid_claims_do_not_stop_a_pass(cluster, of):
    node = roomy(cluster, fake__csi__provider=1)
    cluster.apply(
        volume_claim("claim", of=of),
        *cluster.pods(1, volumes=[claimed("data", "claim")], node_name=node.name),
        *cluster.pods(1, volumes=[claimed("data", "gone")], node_name=node.name),
    )
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.node_of(pod).name == node.name


@pytest.mark.parametrize("kind", ["claim", "ephemeral", "volume"])
def test_case_287_in_tree_volumes_count_for_the_driver_that_took_over(cluster, kind):
    node = roomy(cluster, ebs__csi__aws__com=1)
    cluster.apply(storage_class(FAST, zones("z1"), provisioner="kubernetes.io/aws-ebs"))
    places = []
    for number in range(2):
        if kind == "ephemeral":
            pod = with_ephemeral(cluster)
        else:
            name = f"claim-{number}"
            in_tree = {"awsElasticBlockStore": {"volumeID": f"vol-{number}"}}
            cluster.apply(volume(f"volume-{number}", [(ZONE, "In", "z1")], source=in_tree))
            to = f"volume-{number}" if kind == "volume" else ""
            cluster.apply(volume_claim(name, of=FAST, to=to))
            pod = cluster.pod(volumes=[claimed("data", name)])
            cluster.provision(pod)
        places.append(cluster.node_of(pod).name)
    assert places[0] == node.name
    assert places[1] != node.name


def disk_of(node, *, of_claim=""):
    """Return a volume on a node's disk, which a program there has made, and which a claim may have."""
    disk = volume("disk", [(HOSTNAME, "In", node.name)], source=LOCAL)
    return msgspec.structs.replace(disk, storage_class="disks", claim=of_claim)


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "free"])
def test_a_pod_gets_a_node_of_its_own_where_the_disks_of_others_are_taken(cluster, taken):
    """kube-scheduler binds it to no node whose local volumes are taken; a new one brings its own."""
    cluster.apply(storage_class("disks", provisioner="kubernetes.io/no-provisioner"))
    cluster.apply(volume_claim("first", of="disks"), volume_claim("second", of="disks"))
    first, second = (cluster.pod(volumes=[claimed("data", name)]) for name in ("first", "second"))
    cluster.provision(first)
    cluster.apply(disk_of(cluster.node_of(first), of_claim="default/first" if taken else ""))
    cluster.provision(second)
    assert (cluster.node_of(second) is not cluster.node_of(first)) is taken
    for claim in cluster.claims:
        assert HOSTNAME not in {each.key for each in claim.spec.requirements}
