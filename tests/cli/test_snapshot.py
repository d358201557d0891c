"""`karpenter snapshot` saves a cluster to one file, without secrets, that offline commands read."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import random
import re
import stat
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from karpenter_core.api.devices import Device, DeviceCapacity, DeviceTemplate, InstanceDevices
from karpenter_core.api.prices import Price
from karpenter_core.cli.cluster_source import ClusterSource
from karpenter_core.cli.document import plan_document
from karpenter_core.cli.plan import solve_cluster
from karpenter_core.cli.snapshot.command import snapshot
from karpenter_core.cli.snapshot.redaction import READ_STRUCTS, redacted
from karpenter_core.cli.snapshot_file.catalogue_document import (
    instance_types_from,
    instance_types_to_json,
)
from karpenter_core.controllers.catalogue.controller import catalogue_version
from karpenter_core.kube.wire.codecs import Codecs
from karpenter_core.kube.wire.kind_groups import EVERY_KIND_GROUP
from karpenter_core.scheduling.instance_types import InstanceType, Offering, Overhead
from karpenter_core.scheduling.requirements import Requirement, Requirements
from tests.cli.inputs import (
    POOL,
    instance_type,
    node,
    offering,
    option_names,
    paid_commitment,
    pod,
    pool,
    write,
)
from tests.cli.test_explain_node import claim_with_node, web
from tests.cli.test_live_cluster import NODE_CLASS, PLANTED, ask, planted_pod, world

__all__ = ["ask", "world"]

ZONE = "topology.kubernetes.io/zone"
TYPES = [
    instance_type("small", "2", "4Gi", offering(0.10), offering(0.11, zone="z2")),
    instance_type("medium", "4", "8Gi", offering(0.18), offering(0.07, capacity_type="spot")),
    instance_type("large", "16", "32Gi", offering(1.00), offering(0.9, zone="z2")),
]


EVERY_KIND = Path(__file__).with_name("every_kind.yaml")
PAGE = (Path(__file__).parents[2] / "docs/reference/snapshot.md").read_text()


def test_every_option_is_in_the_table():
    """And none that does not exist."""
    options = option_names(snapshot)
    table = PAGE.partition("| option | meaning |")[2].partition("\n\n")[0]
    first_column = " ".join(line.split("|")[1] for line in table.strip().splitlines()[1:])
    assert set(re.findall(r"`([^`]+)`", first_column)) == options


@pytest.fixture
def save(program, tmp_path):
    """Save these objects, and return the file."""

    def run(*objects, name="saved.json", options=()):
        flat = [each for item in objects for each in (item if isinstance(item, tuple) else (item,))]
        types = tmp_path / "types.json"
        types.write_text(json.dumps(TYPES))
        source = write(tmp_path / "cluster.yaml", *flat)
        file = tmp_path / name
        program(
            "snapshot", "--offline", source, "--instance-types-file", types, "-o", file, *options
        )
        return file

    return run


def answers(program, *options):
    """Return what the commands say of one cluster, without what is of the moment."""
    plan = json.loads(program("plan", "-o", "json", *options).out)
    plan.pop("timings")
    explained = {
        name: json.loads(program("explain", *name.split(), "-o", "json", *options).out)
        for name in (
            "pod shop/a",
            "pod shop/huge",
            "node node-1",
            "node node-2",
            "nodepool general",
        )
    }
    for each in explained.values():  # of a live cluster some messages say what to wait for
        for key in ("answer", "message"):
            text = each[key].partition(". No NodeClaim has been made yet")[0]
            each[key] = text.partition("; the Kubernetes scheduler is expected")[0]
    return {"plan": plan, **explained}


def test_a_snapshot_answers_as_the_live_cluster_does(ask, program, world, tmp_path):
    """Plan, explanations and findings of doctor; no provider is asked again."""
    guarded = pod(
        "guarded", nodeName="node-2", metadata={"namespace": "shop", "labels": {"app": "guarded"}}
    )
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "strict", "namespace": "shop"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    selector = {"node.kubernetes.io/instance-type": "medium"}  # no node has it
    waiting = pod("a", cpu="3", nodeSelector=selector), pod("huge", cpu="100")
    nodes = *claim_with_node("node-1"), *claim_with_node("node-2")
    world.apply(NODE_CLASS, POOL, *nodes, guarded, budget, *waiting)
    world.make_ready("general")
    world.settle(["a", "huge"])
    file = tmp_path / "saved.json.gz"

    ask("snapshot", "-o", file)
    live = answers(ask)
    saved = answers(program, "--offline", file)

    assert saved == live
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    requests = world.door.requests
    assert {method for method, _ in requests} == {"GET"}
    live_findings = json.loads(
        program("doctor", "--output=json", "--kubeconfig", world.direct_kubeconfig, code=None).out
    )
    saved_findings = json.loads(
        program("doctor", "--output=json", "--offline", file, code=None).out
    )
    for about in ("objects", "workloads"):
        assert [one for one in saved_findings if one["about"] == about] == [
            one for one in live_findings if one["about"] == about
        ]
    assert any("strict" in one["message"] for one in saved_findings)


def test_doctor_reads_a_snapshot_from_the_standard_input(program, save, monkeypatch):
    """Once: there is nothing to read a second time."""
    file = save(POOL, pod("web"))
    of_file = program("doctor", "--offline", file, code=None).out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))

    assert program("doctor", "--offline", "-", code=None).out == of_file


def test_planted_secrets_are_nowhere_in_the_file(ask, program, world, tmp_path):
    """Not in pods, templates, annotations, Secrets, ConfigMaps, nor in the kubeconfig."""
    daemon = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "shop", "annotations": {"note": "planted-note"}},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}, "annotations": {"key": "planted-note"}},
                "spec": planted_pod("x", "1")["spec"],
            },
        },
    }
    hidden = [
        {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": "hidden", "namespace": "shop"},
            "data": {"value": "planted-note"},
        }
        for kind in ("Secret", "ConfigMap")
    ]
    marked = pool(template={})
    marked["spec"]["template"]["metadata"] = {"annotations": {"team.example/key": "planted-note"}}
    marked["metadata"]["annotations"] = {"example.com/password": "planted-note"}
    volume = planted_pod("huge", "100")
    volume["spec"]["volumes"] = [{"name": "v", "hostPath": {"path": "/planted-note"}}]
    world.apply(NODE_CLASS, marked, planted_pod("a", "3"), volume, daemon, *hidden)
    world.make_ready("general")
    world.settle(["a", "huge"])
    config = json.loads(world.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "planted-token"}
    world.kubeconfig.write_text(json.dumps(config))
    file = tmp_path / "saved.json"

    ask("snapshot", "-o", file)

    text = file.read_text()
    assert "huge" in text
    assert [
        secret for secret in (*PLANTED, "planted-note", "managedFields") if secret in text
    ] == []
    assert {item["kind"] for item in json.loads(text)["items"]}.isdisjoint({"Secret", "ConfigMap"})


def test_user_data_of_node_classes_is_left_out():
    manifest = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "a", "managedFields": [{}], "annotations": {"x.y/z": "planted"}},
        "spec": {"role": "r", "userData": "planted", "inner": {"bootstrapScript": "planted"}},
    }

    kept = redacted(manifest, group="karpenter.k8s.aws", kind="EC2NodeClass", is_node_class=True)

    assert kept["spec"] == {"role": "r", "inner": {}}
    assert "planted" not in json.dumps(kept)
    assert "managedFields" not in kept["metadata"]


def test_every_kind_that_is_read_has_a_way_into_a_snapshot():
    """A kind that nobody has thought of is refused, not copied."""
    for kind in Codecs(groups=EVERY_KIND_GROUP).kinds:
        manifest = {"apiVersion": kind.api_version, "metadata": {"name": "x"}}
        if (kind.group, kind.kind) not in READ_STRUCTS:
            assert redacted(manifest, group=kind.group, kind=kind.kind)["kind"] == kind.kind
    with pytest.raises(Exception, match="a snapshot holds no Secret"):
        redacted({"apiVersion": "v1", "metadata": {}}, group="", kind="Secret")


def test_instance_types_survive_without_loss():
    requirements = Requirements(
        [
            Requirement(key="a", complement=True, values=frozenset({"x"}), gte=2, lte=9),
            Requirement(key="b", complement=False, values=frozenset({"1", "2"}), min_values=2),
            Requirement(key="gone", complement=False),
        ]
    )
    device = Device(name="gpu-0", attributes=(("d/x", True), ("d/y", 3), ("d/z", "text")),
                    capacity=(DeviceCapacity(name="d/memory", value=Decimal(1)),))  # fmt: skip
    bought = Offering(
        requirements=Requirements(
            [
                Requirement.of(ZONE, "In", ["z1"]),
                Requirement.of("karpenter.sh/capacity-type", "In", ["reserved"]),
            ]
        ),
        price=Price(0.1 + 0.2, "EUR"),
        available=False,
        reservation_capacity=3,
        interruption_risk=0.25,
        overhead_override={"memory": 7},
        list_price=Price(0.5),
        price_source='plug-in "x"',
    )
    types = (
        InstanceType(
            name="one",
            requirements=requirements,
            offerings=(bought,),
            capacity={"cpu": 4000, "memory": 2**33},
            overhead=Overhead(kube_reserved={"cpu": 80}, eviction_threshold={"memory": 100}),
            devices=InstanceDevices(
                templates=(DeviceTemplate(driver="d", pool="p", devices=(device,)),)
            ),
        ),
    )

    (read,) = instance_types_from(json.loads(json.dumps(instance_types_to_json(types))), "file")

    assert catalogue_version([read]) == catalogue_version(types)
    assert read.requirements == requirements
    assert read.devices == types[0].devices
    (offer,) = read.offerings
    assert (offer.price, offer.list_price, offer.available) == (bought.price, Price(0.5), False)
    assert (offer.reservation_capacity, offer.overhead_override) == (3, {"memory": 7})


def test_a_snapshot_of_a_cloud_is_read_without_its_plugin_or_account(program, save, tmp_path):
    """Instance types come from the file alone; those of another NodeClass are unknown."""
    file = save(POOL, pod("web"))
    text = (
        file.read_text().replace("KWOKNodeClass", "FarNodeClass").replace("kwok.sh", "far.example")
    )
    file.write_text(text)

    claim = json.loads(program("plan", "--offline", file, "-o", "json").out)["nodeClaims"][0]
    assert claim["cheapest"]["instanceType"] == "medium"

    other = write(tmp_path / "other.yaml", pool("other", template={"nodeClassRef": {
        "group": "karpenter.far.example", "kind": "FarNodeClass", "name": "unlisted"}}))  # fmt: skip
    shown = program("plan", "--offline", file, other, "-o", "json")
    assert "the snapshot has no instance types of FarNodeClass unlisted" in shown.err


def test_files_are_added_to_a_snapshot_as_to_a_live_cluster(program, save, tmp_path):
    file = save(POOL, pod("web", cpu="1500m"))
    key = "node.kubernetes.io/instance-type"
    only_large = {"requirements": [{"key": key, "operator": "In", "values": ["large"]}]}
    changed = write(tmp_path / "changed.yaml", pool(template=only_large))

    table = program("plan", "--offline", file, changed).out

    assert "large" in table
    assert "without the files: 1 node to launch" in table


def test_settings_of_the_snapshot_count_unless_an_option_says_otherwise(program, save):
    file = save(POOL, pod("web"), options=[paid_commitment()])

    def cheapest(*options):
        plan = json.loads(program("plan", "--offline", file, "-o", "json", *options).out)
        return plan["nodeClaims"][0]["cheapest"]["instanceType"]

    assert cheapest() == "large"
    assert cheapest("--commitments=") == "medium"


@pytest.mark.parametrize(
    ("changed", "launched"),
    [
        ({"priority_cutoff": -10}, [["shop/web"]]),
        ({"max_nodes_total": 1}, []),
        ({"packing": "first-fit"}, [["shop/batch", "shop/web"]]),
    ],
)
def test_a_catalogue_file_replaces_only_the_instance_types_of_a_snapshot(
    program, save, tmp_path, changed, launched
):
    """Settings, time and labels stay those of the snapshot, as with its live cluster."""
    pods = [pod("batch", cpu="7", priority=-20), pod("web", cpu="7")]
    full = (*claim_with_node("full"), pod("bound", cpu="15", nodeName="full"))
    file = save(POOL, full, *pods, options=[paid_commitment()])
    content = json.loads(file.read_text())
    content["karpenterSnapshot"]["settings"] |= changed
    file.write_text(json.dumps(content))

    def planned(*options):
        shown = program("plan", "--offline", file, "-o", "json", *options)
        return {**json.loads(shown.out), "timings": None}, shown.err

    plan, notes = planned()
    assert [sorted(claim["pods"]) for claim in plan["nodeClaims"]] == launched
    assert planned("--instance-types-file", tmp_path / "types.json") == (plan, notes)


def test_files_that_are_no_snapshots_are_refused(program, save, tmp_path):
    file = save(POOL)
    good = json.loads(file.read_text())
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps({**good, "karpenterSnapshot": {"version": 99}}))
    assert 'field "karpenterSnapshot.version": must be 1' in program(
        "plan", "--offline", newer, code=2
    ).err  # fmt: skip
    broken = json.loads(file.read_text())
    (types,) = broken["karpenterSnapshot"]["catalogues"].values()
    types[0]["offerings"][0]["price"]["amount"] = "cheap"
    newer.write_text(json.dumps(broken))
    assert "amount" in program("plan", "--offline", newer, code=2).err
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(file.read_bytes())[:-20])
    assert "cannot be read" in program("plan", "--offline", cut, code=2).err
    assert "is a snapshot: add --offline" in program("plan", file, code=2).err
    assert "only one snapshot" in program("plan", "--offline", file, file, code=2).err
    assert "is a snapshot already" in program("snapshot", "--offline", file, code=2).err
    missing = tmp_path / "none" / "a.json"
    assert "cannot be written" in program(
        "snapshot", "--offline", tmp_path / "cluster.yaml", "-o", missing, code=2
    ).err  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("settings", "packing"), "tight", 'packing: must be one of "value", "first-fit"'),
        (("settings", "node_fee"), -1, 'node_fee: must be a number of 0 or more, not "-1.0"'),
        (("settings", "node_fee"), float("nan"), 'not "nan"'),
        (("settings", "max_nodes_total"), -5, 'not "-5"'),
        (("settings", "exchange_rates"), {"EUR": 0}, '"EUR=0.0" is not CURRENCY=NUMBER above zero'),
        (("settings", "currency"), "", 'not ""'),
        (("settings", "feature_gates"), {}, '"capacity_buffer" is missing'),
        (
            ("settings", "commitments", 0, "price"),
            float("inf"),
            "price of a commitment must be finite, not inf",
        ),
        (("settings", "commitments", 0, "amount"), -1, "`int` >= 0 - at `$.amount`"),
        (("maxInstanceTypes",), 0, "Expected `int` >= 1 - at `$.maxInstanceTypes`"),
        (("takenAt",), "2026-01-02T03:04:05", "must have a time zone, not 2026-01-02T03:04:05"),
        (("catalogues", 0, "offerings", 0, "price", "amount"), -5, '"small"'),
        (("catalogues", 0, "offerings", 0, "price", "amount"), -5, "must not be negative"),
        (("catalogues", 0, "capacity", "cpu"), -5, "must not be negative"),
        (("catalogues", 0, "name"), "medium", "lists medium twice"),
    ],
)
def test_a_value_that_no_setting_or_provider_may_have_is_refused(program, save, path, value, named):
    """It would end in a traceback, or in a plan that no controller makes."""
    file = save(POOL, pod("web"), options=[paid_commitment()])
    content = json.loads(file.read_text())
    place = header = content["karpenterSnapshot"]
    if path[0] == "catalogues":
        (place,) = header["catalogues"].values()
        path = path[1:]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    file.write_text(json.dumps(content))

    shown = program("plan", "--offline", file, code=2).err

    assert shown.startswith(f"karpenter: {file}: ")
    assert shown.count("\n") == 1
    assert named in shown


# -- hashed names ----------------------------------------------------------------------------------


TOKEN = re.compile(r"n[0-9]+-[0-9a-f]{8}")


def random_cluster(seed):
    """Pools, nodes, pods, volumes and budgets that refer to each other by names and labels."""
    rng = random.Random(seed)
    names = [f"{word}{number}" for number in range(3) for word in ("ash", "oak", "elm", "fir")]
    rng.shuffle(names)
    teams = rng.sample(names, 3)
    objects = [
        pool(f"pool-{team}", labels={"team.example": team},
             template={"taints": [{"key": "for", "value": team, "effect": "NoSchedule"}]}
             if rng.random() < 0.4 else {}, weight=rng.choice([1, 1, 10]))
        for team in teams
    ]  # fmt: skip
    for number, name in enumerate(names[:4]):
        objects += claim_with_node(f"node-{name}", of=f"pool-{rng.choice(teams)}")
        objects.append(web(f"on-{name}", f"node-{name}", cpu="250m", labels={"app": name}))
        if number % 2:
            objects.append(
                {
                    "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                    "metadata": {"name": f"pdb-{name}", "namespace": "default"},
                    "spec": {"maxUnavailable": rng.choice([0, 1]),
                             "selector": {"matchLabels": {"app": name}}},
                }
            )  # fmt: skip
    for name in names:
        spec = {}
        if rng.random() < 0.3:
            spec["nodeSelector"] = {"team.example": rng.choice(teams)}
        if rng.random() < 0.3:
            spec["tolerations"] = [{"key": "for", "operator": "Equal", "value": rng.choice(teams)}]
        if rng.random() < 0.3:
            spec["topologySpreadConstraints"] = [
                {"maxSkew": 1, "topologyKey": rng.choice([ZONE, "kubernetes.io/hostname"]),
                 "whenUnsatisfiable": "DoNotSchedule",
                 "labelSelector": {"matchLabels": {"app": rng.choice(names)}}}
            ]  # fmt: skip
        if rng.random() < 0.2:
            spec["volumes"] = [
                {"name": "data", "persistentVolumeClaim": {"claimName": f"c-{name}"}}
            ]
            objects += volume_of(name, rng.choice(["z1", "z2"]))
        cpu = rng.choice(["250m", "1", "1500m", "3", "40"])
        metadata = {"labels": {"app": rng.choice(names)}, "namespace": "shop"}
        objects.append(pod(f"pod-{name}", cpu=cpu, metadata=metadata, **spec))
    return objects


def volume_of(name, zone):
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    return [
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"c-{name}", "namespace": "shop"},
            "spec": {"volumeName": f"v-{name}"}, "status": {"phase": "Bound"},
        },
        {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"v-{name}"},
            "spec": {"csi": {"driver": "ebs.csi.aws.com"},
                     "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
        },
    ]  # fmt: skip


def plan_of(file):
    cluster = asyncio.run(ClusterSource(files=(file,), offline=True).read()).cluster
    return plan_document(cluster, solve_cluster(cluster))


def pairs(plain, hashed):
    """Yield the strings of two documents of one shape, side by side."""
    if isinstance(plain, dict):
        for name in plain:
            yield from pairs(plain[name], hashed[name])
    elif isinstance(plain, list):
        for one, other in zip(plain, hashed, strict=True):
            yield from pairs(one, other)
    elif isinstance(plain, str):
        yield plain, hashed


@pytest.mark.parametrize("seed", range(12))
def test_the_plan_of_hashed_names_is_the_plan_up_to_names(save, tmp_path, seed):
    """Each name has one hash and each hash one name; no name of the cluster is left."""
    objects = random_cluster(seed)
    plain_file = save(*objects, name="plain.json")
    hashed_file = save(*objects, name="hashed.json", options=["--hash-names"])
    plain, hashed = (json.loads(file.read_text()) for file in (plain_file, hashed_file))
    plain["items"] = [item for item in plain["items"] if item["kind"] != "KWOKNodeClass"]

    names = {}
    for one, other in pairs(plain["items"], hashed["items"]):
        if one != other and other:
            assert names.setdefault(other, one) == one
    assert len(set(names.values())) == len(names)
    text = json.dumps({key: hashed[key] for key in ("items", "karpenterSnapshot")})
    assert not re.search(r"(ash|oak|elm|fir)\d", text)

    shown = json.dumps(plan_of(hashed_file))
    renamed = json.loads(TOKEN.sub(lambda token: names[token[0]], shown))
    assert renamed == plan_of(plain_file)


def texts(value, place=""):
    """Yield every string of a document with its place; keys are no strings of their own."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from texts(inner, f"{place}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, place)
    elif isinstance(value, str):
        yield place, value


KEPT_PLACES = re.compile(r"\.(key|topologyKey|matchLabelKeys|driver|expression|attributes\..*)$")
"""Keys of labels and taints, and what device drivers define: docs/reference/snapshot.md says so."""


def test_no_name_is_left_anywhere(save):
    """In no field and no annotation of any kind, referenced object or not."""
    objects = list(yaml.safe_load_all(EVERY_KIND.read_text()))
    plain = json.loads(save(*objects, name="plain.json").read_text())
    hashed = json.loads(save(*objects, name="hashed.json", options=["--hash-names"]).read_text())

    assert {item["kind"] for item in plain["items"]} == {each["kind"] for each in objects}
    left = {
        (place, text)
        for item in (*hashed["items"], hashed["karpenterSnapshot"])
        for place, text in texts(item)
        if "zq" in text and not KEPT_PLACES.search(place)
    }
    assert left == set()


def test_every_command_decides_alike_on_hashed_names(save, program):
    """Plans, explanations and findings differ in names alone."""
    objects = list(yaml.safe_load_all(EVERY_KIND.read_text()))
    plain_file = save(*objects, name="plain.json")
    hashed_file = save(*objects, name="hashed.json", options=["--hash-names"])
    plain, hashed = (json.loads(file.read_text()) for file in (plain_file, hashed_file))
    kept = [item for item in plain["items"] if item["kind"] != "KWOKNodeClass"]
    names = {
        other: one for one, other in pairs([names_of(each) for each in kept], [names_of(each) for each in hashed["items"]])
    }  # fmt: skip
    new = {one: other for other, one in names.items()}
    values = dict(pairs(kept, hashed["items"]))
    for command in (
        ("plan",), ("plan", "--rebalance"), ("top",),
        ("explain", "pod", "zq-ns/zq-pod"), ("explain", "node", "zq-node.zq.internal"),
        ("explain", "nodepool", "zq-pool"), ("explain", "nodeclaim", "zq-claim"),
    ):  # fmt: skip
        renamed = ["/".join(new.get(part, part) for part in word.split("/")) for word in command]
        one = json.loads(program(*command, "--offline", plain_file, "-o", "json").out)
        other = json.loads(program(*renamed, "--offline", hashed_file, "-o", "json").out)
        shown = TOKEN.sub(
            lambda token: next((n for n, o in values.items() if o == token[0]), token[0]),
            json.dumps(other),
        )
        found = json.loads(shown)
        for document in (found, one):
            document.pop("timings", None)
            document.pop("conditions", None)  # their messages are left out
        assert found == one, command


def names_of(item):
    return [item["metadata"]["name"], item["metadata"].get("namespace") or ""]


def test_the_key_of_the_hashes_differs_each_time(save):
    """So that names cannot be looked up in a table made of another snapshot."""
    first, second = (
        save(POOL, node("n1"), pod("web"), name=name, options=["--hash-names"]).read_text()
        for name in ("a.json", "b.json")
    )
    assert set(TOKEN.findall(first)).isdisjoint(TOKEN.findall(second))
