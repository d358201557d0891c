"""`karpenter plan --offline` keeps its output contract and refuses bad input."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest
import yaml

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.host.facade import Providers
from tests.cli.inputs import (
    NODE_CLASS_REF,
    POOL,
    TYPES,
    instance_type,
    node,
    offering,
    paid_commitment,
    pod,
    pool,
    write,
)
from tests.support import device_manifests as devices


@pytest.fixture
def run(program, types_file):
    """Plan offline with the catalogue of the tests."""

    def call(*arguments, code=0):
        return program(
            "plan", "--offline", "--instance-types-file", types_file, *arguments, code=code
        )

    return call


@pytest.fixture
def plan(run):
    return lambda *arguments: json.loads(run("-o", "json", *arguments).out)


def test_the_json_says_claims_nodes_reasons_and_cost(plan, tmp_path):
    """Every field of the contract, for pods of each fate."""
    file = write(
        tmp_path / "all.yaml",
        POOL,
        node("old"),
        pod("a"),
        pod("b", cpu="3", limits=True),
        pod("huge", cpu="100"),
        pod("picky", nodeSelector={"kubernetes.io/arch": "arm64"}),
    )

    document = plan(file)

    assert set(document) == {"nodeClaims", "existingNodes", "unschedulable", "cost", "timings"}
    (claim,) = document["nodeClaims"]
    assert claim["nodePool"] == "general"
    assert claim["pods"] == ["shop/b"]
    assert claim["instanceTypes"] == ["medium", "large"]
    assert claim["cheapest"] == {
        "instanceType": "medium", "zone": "z1", "capacityType": "on-demand", "price": 0.18,
    }  # fmt: skip
    assert {
        "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large", "medium"],
    } in claim["requirements"]  # fmt: skip
    assert document["existingNodes"] == {"old": ["shop/a"]}
    assert set(document["unschedulable"]) == {"shop/huge", "shop/picky"}
    huge = document["unschedulable"]["shop/huge"]["pools"]["general"]
    assert (huge["constraint"], huge["closest"]) == ("resource", "large")
    assert "cpu: 100 asked" in huge["detail"]
    picky = document["unschedulable"]["shop/picky"]
    assert picky["pools"]["general"]["constraint"] == "requirement"
    assert "kubernetes.io/arch" in picky["message"]
    assert (document["cost"]["hourly"], document["cost"]["firstFit"]) == (0.18, 0.18)
    assert 0 < document["cost"]["lowerBound"] <= 0.18


def test_static_pools_are_planned_by_their_replicas(run, plan, tmp_path):
    """Without a static pool the plan says nothing of them."""
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "few-a", "labels": {"karpenter.sh/nodepool": "few"}},
        "spec": {"nodeClassRef": NODE_CLASS_REF, "requirements": []},
    }
    surplus = {**claim, "metadata": {"name": "none-a", "labels": {"karpenter.sh/nodepool": "none"}}}
    file = write(
        tmp_path / "static.yaml",
        pool("few", replicas=4, limits={"nodes": 3}),
        pool("none", replicas=0),
        claim,
        surplus,
    )

    few, none = plan(file)["staticNodePools"]

    assert (few["nodePool"], few["replicas"], few["nodeClaims"]) == ("few", 4, 1)
    assert (few["create"], few["delete"], few["problem"]) == (2, [], None)
    assert few["cheapest"]["price"] > 0
    assert (none["create"], none["delete"]) == (0, ["none-a"])
    text = run(file).out
    assert "static NodePool few: 1 of 4 replicas exist; 2 to create, from" in text
    assert "static NodePool none: 1 of 0 replicas exist; to delete: none-a" in text
    assert "staticNodePools" not in plan(write(tmp_path / "plain.yaml", POOL))


def test_devices_are_allocated_if_the_files_have_a_device_class(plan, tmp_path):
    """Slices of the cluster, here for all nodes, and the reason of a pod that gets none."""
    device_slice = {
        "apiVersion": devices.API,
        "kind": "ResourceSlice",
        "metadata": {"name": "shared"},
        "spec": {
            "driver": devices.DRIVER,
            "allNodes": True,
            "pool": {"name": "shared", "generation": 1, "resourceSliceCount": 1},
            "devices": [devices.DEVICE],
        },
    }
    claims = [devices.claim("one"), devices.claim("two")]
    for each in claims:
        each["metadata"]["namespace"] = "shop"
    pods = [
        pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": name}])
        for name in ("one", "two")
    ]
    document = plan(write(tmp_path / "all.yaml", POOL, devices.CLASS, device_slice, *claims, *pods))
    assert [each["pods"] for each in document["nodeClaims"]] == [["shop/one"]]
    reason = document["unschedulable"]["shop/two"]["pools"]["general"]
    assert reason["constraint"] == "device"
    assert "not enough of them are free" in reason["detail"]


def test_one_json_object_may_hold_a_whole_cluster(plan, tmp_path):
    """Keys instead of kinds; daemonSetPods run once on every node."""
    untyped = [{k: v for k, v in p.items() if k not in {"apiVersion", "kind"}} for p in (pod("a"),)]
    bound = pod("bound", nodeName="old")
    file = tmp_path / "cluster.json"
    file.write_text(
        json.dumps(
            {
                "nodePools": [POOL],
                "nodes": [node("old")],
                "boundPods": [bound],
                "pods": untyped,
                "daemonSetPods": [pod("agent", cpu="400m")],
            }
        )
    )

    document = plan(file)

    # 1 CPU less 500m bound less 400m of the daemon leaves too little for 500m
    assert document["existingNodes"] == {}
    (claim,) = document["nodeClaims"]
    assert claim["pods"] == ["shop/a"]
    assert claim["instanceTypes"][0] == "small"


def test_lists_folders_and_other_kinds_are_read(run, plan, tmp_path):
    """A folder of files, a List as kubectl writes it; what scheduling ignores is said to be."""
    folder = tmp_path / "manifests"
    (folder / "deep").mkdir(parents=True)
    write(folder / "pool.yaml", POOL, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})
    write(
        folder / "deep" / "pods.yml",
        {"apiVersion": "v1", "kind": "List", "items": [pod("a"), pod("b")]},
    )
    (folder / "notes.txt").write_text("not read")

    assert plan(folder)["nodeClaims"][0]["pods"] == ["shop/a", "shop/b"]
    assert "ignored: 1 of kind ConfigMap" in run(folder).err


@pytest.mark.parametrize("text", ["", "# nothing\n---\n", "null\n"])
def test_an_empty_file_is_noted(run, tmp_path, text):
    """`kubectl get pods > FILE` that fails leaves one: no pod would seem to wait."""
    file = tmp_path / "pods.yaml"
    file.write_text(text)

    assert f"{file}: is empty" in run(file).err.replace("\n", "")


def test_the_folder_of_a_mounted_config_map_is_read_once(plan, tmp_path):
    """Its files are links into a folder beside them, whose name begins with two dots."""
    folder = tmp_path / "mounted"
    (folder / "..2030_01_01").mkdir(parents=True)
    write(folder / "..2030_01_01" / "all.yaml", POOL, pod("a"))
    (folder / "..data").symlink_to("..2030_01_01")
    (folder / "all.yaml").symlink_to("..data/all.yaml")

    assert plan(folder)["nodeClaims"][0]["pods"] == ["shop/a"]


def test_a_folder_of_which_a_part_may_not_be_read_is_refused(run, tmp_path, monkeypatch):
    """A plan without its objects would be another one."""
    folder = tmp_path / "manifests"
    (folder / "closed").mkdir(parents=True)
    write(folder / "pool.yaml", POOL)
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    error = run(folder, code=2).err

    assert f"{folder / 'closed'}: cannot be read: Permission denied" in error


def test_a_terminal_without_columns_hides_no_plan(run, tmp_path, monkeypatch):
    """Some programs that run jobs give the width of their terminal as 0."""
    monkeypatch.setenv("COLUMNS", "0")
    assert "Nodes to launch" in run(write(tmp_path / "all.yaml", POOL, pod("a"))).out


def test_pools_of_foreign_clouds_are_planned_with_the_given_catalogue(plan, tmp_path):
    """A NodeClass kind that no loaded provider serves is no obstacle to planning."""
    pool = json.loads(json.dumps(POOL))
    pool["spec"]["template"]["spec"]["nodeClassRef"] = {
        "group": "example.com", "kind": "OtherClass", "name": "x",
    }  # fmt: skip

    document = plan(write(tmp_path / "all.yaml", pool, pod("a")))

    assert document["nodeClaims"][0]["instanceTypes"][0] == "small"
    labels = {r["key"]: r["values"] for r in document["nodeClaims"][0]["requirements"]}
    assert labels["example.com/otherclass"] == ["x"]


def test_packing_and_preference_options_change_the_plan(plan, tmp_path):
    """First-fit packs into one large node; ignored preferences are not tried."""
    wish = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "preference": {
                        "matchExpressions": [
                            {
                                "key": "node.kubernetes.io/instance-type",
                                "operator": "In",
                                "values": ["large"],
                            }
                        ]
                    },
                }
            ]
        }
    }
    sold = tmp_path / "sold.json"
    sold.write_text(json.dumps(TYPES + [{**TYPES[1], "name": f"medium{n}"} for n in range(20)]))
    many = write(tmp_path / "many.yaml", POOL, *(pod(f"p{n}", cpu="1") for n in range(60)))
    wishing = write(tmp_path / "wishing.yaml", POOL, pod("a", affinity=wish))

    first_fit = plan("--packing", "first-fit", "--instance-types-file", sold, many)
    value = plan("--instance-types-file", sold, many)

    assert {c["cheapest"]["instanceType"] for c in first_fit["nodeClaims"]} == {"large"}
    assert value["cost"]["hourly"] <= first_fit["cost"]["hourly"] == value["cost"]["firstFit"]
    assert plan(wishing)["nodeClaims"][0]["instanceTypes"] == ["large"]
    assert plan("--ignore-preferences", wishing)["nodeClaims"][0]["instanceTypes"][0] == "small"


def test_pods_need_not_be_marked_unschedulable_but_gates_hold(plan, tmp_path):
    """Every pod without a node is to be placed, whatever its status; gated ones wait."""
    fresh = {**pod("fresh"), "status": {"phase": "Pending", "conditions": []}}
    done = {**pod("done"), "status": {"phase": "Succeeded"}}
    gated = pod("gated", schedulingGates=[{"name": "example.com/hold"}])

    document = plan(write(tmp_path / "all.yaml", POOL, fresh, done, gated))

    assert [c["pods"] for c in document["nodeClaims"]] == [["shop/fresh"]]
    assert set(document["unschedulable"]) == {"shop/gated"}
    assert "example.com/hold" in document["unschedulable"]["shop/gated"]["message"]


def test_the_table_shows_nodes_reasons_and_brackets(run, tmp_path):
    """For people; values in brackets are not swallowed as markup."""
    shown = run(
        write(
            tmp_path / "all.yaml", POOL, node("old"), pod("a"), pod("b", cpu="1500m"),
            pod("picky", nodeSelector={"kubernetes.io/arch": "arm64"}),
        )
    ).out  # fmt: skip

    assert ["general", "small", "z1", "on-demand", "1", "1", "3", "0.1000", "shop/b"] in [
        line.split() for line in shown.splitlines()
    ]
    assert ["old", "1", "shop/a"] in [line.split() for line in shown.splitlines()]
    assert "[arm64]" in shown
    assert shown.splitlines()[-1].startswith("1 node to launch for 1 pod at 0.1000 per hour")
    assert shown.splitlines()[-1].endswith(
        "1 pod on existing nodes; 1 pod stays pending",
    )


@pytest.mark.parametrize("width", [60, 80, 160])
def test_tables_fit_the_width_and_stay_readable(run, tmp_path, monkeypatch, width):
    """Nodes alike are one row, reasons alike are said once; long names are cut off."""
    long = "a-very-long-name-of-a-service-as-deployments-make-them-7d9c5b6f4-x2k9p"
    monkeypatch.setenv("COLUMNS", str(width))
    shown = run(
        write(
            tmp_path / "all.yaml",
            POOL,
            *(pod(f"{long}-{n}", cpu="15") for n in range(30)),
            *(pod(f"arm-{n:02}", nodeSelector={"kubernetes.io/arch": "arm64"}) for n in range(40)),
            *(pod(f"huge-{n:02}", cpu=str(100 + n)) for n in range(30)),
        )
    ).out  # fmt: skip

    *lines, summary = shown.splitlines()
    assert not [letter for letter in shown if not letter.isascii() and letter != "─"]
    assert max(map(len, lines)) <= width
    assert sum("large z1" in line for line in lines) == 1
    assert sum("30" in line.split() for line in lines) == 1
    assert "shop/arm-00, shop/arm-01, shop/arm-02, shop/arm-03, shop/arm-04" in " ".join(
        shown.split()
    )
    assert "and 35 more" in shown
    assert "and 11 more pods for 11 more reasons: --output json has them all" in " ".join(
        shown.split()
    )
    assert summary.startswith("30 nodes to launch for 30 pods at 30.0000 per hour")
    assert summary.endswith("70 pods stay pending")


def test_the_summary_omits_empty_parts(run, tmp_path):
    """No pods, or pods that all stay where they are."""
    nothing = run(write(tmp_path / "pool.yaml", POOL)).out
    kept = run(write(tmp_path / "kept.yaml", POOL, node("old"), pod("a"))).out

    assert nothing.strip() == "no pod waits for a node"
    assert kept.splitlines()[-1] == "no node to launch; 1 pod on existing nodes"


def broken(field, value):
    pool = json.loads(json.dumps(POOL))
    pool["spec"][field] = value
    return pool


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "line 2: is not YAML"),
        ("- 1", "document 1: is no Kubernetes object but an array"),
        ("kind: Pod", 'document 1: field "apiVersion": missing'),
        ("kind: Pod\nspec:\n  a: 1\n  b: 2\n  a: 3", 'line 5: field "a": is duplicated'),
        ("a: *x", 'line 1: alias "x" names no anchor before it'),
        ("a: &x [*x]", 'line 1: alias "x" names no anchor before it'),
        ("a: !!python/name:os.system x", 'line 1: tag "tag:yaml.org,2002:python/name:os.system"'),
        ("a: !!set {x}", 'line 1: tag "tag:yaml.org,2002:set" is not known'),
        ("a: !!int x", 'line 1: "x" is no value of tag "tag:yaml.org,2002:int"'),
        ("a: 1\n[b]: 1", "line 2: a key must be text"),
        ("a: 1\n<<: 1", "line 2: a merge key takes an object or a list of objects"),
        ("a: " + "[" * 300 + "]" * 300, "line 1: is nested too deeply"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "is nested too deeply"),
        ('{"pods": [], "pods": []}', 'field "pods": is duplicated in one object'),
        ("pots: []", 'document 1: field "pots": unknown'),
        ("pods: null\nnodes: x", 'document 1: field "nodes": must be a list'),
        (
            "apiVersion: karpenter.sh/v1\nkind: NodePoool\nmetadata: {name: x}",
            'document 1: field "kind": unknown kind "NodePoool"',
        ),
        (
            yaml.safe_dump_all([POOL, broken("weight", 500)]).replace("general", "heavy", 1),
            'document 2: NodePool "general": spec.weight: Invalid value: 500',
        ),
        (
            yaml.safe_dump_all([pod("a"), pod("b", cpu="many")]),
            'document 2: Pod "shop/b"',
        ),
        (yaml.safe_dump_all([pod("a"), pod("a")]), 'Pod "shop/a": is already in'),
        (yaml.safe_dump({**pod("a"), "metadata": {}}), 'field "metadata.name": missing'),
    ],
)
def test_bad_input_gets_one_message_naming_file_document_object_and_field(
    run, tmp_path, text, said
):
    """Exit code 2 and one line, whatever is wrong."""
    file = tmp_path / "broken.yaml"
    file.write_text(text)

    shown = run(file, code=2)

    assert shown.out == ""
    (line,) = shown.err.strip().splitlines()
    assert line.startswith(f"karpenter: {file}")
    assert said in line


def test_types_that_no_cloud_lists_are_an_error_with_other_sources(program, tmp_path, monkeypatch):
    """NodeClasses of a repository have no status, and the computer may have no credentials."""

    async def refuse(_self, _pool, _node_class):
        raise CloudProviderError("ec2:DescribeInstanceTypes: no credentials")

    monkeypatch.setattr(Providers, "list_instance_types", refuse)
    file = write(tmp_path / "all.yaml", POOL, pod("a"))
    assert program("plan", "--offline", file, code=2).err == (
        f'karpenter: {file}, document 1: NodePool "general": its instance types cannot be listed: '
        "ec2:DescribeInstanceTypes: no credentials; without access to the cloud use "
        "--instance-types-file, or a file of karpenter snapshot, which has them\n"
    )


def test_unreadable_files_are_named(run, tmp_path):
    """A file that is not there, a broken JSON file, an empty folder, a broken catalogue."""
    (tmp_path / "x.json").write_text("{]")
    (tmp_path / "empty").mkdir()
    bad_types = tmp_path / "bad-types.json"
    bad_types.write_text('[{"name": "x"}]')

    assert f"{tmp_path / 'none.yaml'}: cannot be read" in run(tmp_path / "none.yaml", code=2).err
    assert "x.json: line 1: is not JSON" in run(tmp_path / "x.json", code=2).err
    assert "empty: no YAML or JSON file" in run(tmp_path / "empty", code=2).err
    pool = write(tmp_path / "pool.yaml", POOL)
    assert "bad-types.json" in run("--instance-types-file", bad_types, pool, code=2).err


def mixed_cluster():
    """A cluster with something of everything."""
    zone = "topology.kubernetes.io/zone"

    def spread(key):
        selector = {"matchLabels": {"app": "spread"}}
        rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
        return [{**rule, "labelSelector": selector}]

    def apart(app):
        term = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": app}},
        }
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    spreading = {"metadata": {"labels": {"app": "spread"}}}
    return {
        "nodePools": [
            pool("a", weight=5, limits={"cpu": "20"}), pool("b"),
            pool("t", template={"taints": [{"key": "t", "effect": "NoSchedule"}]}),
        ],
        "nodes": [node(f"n{n}", cpu="2", labels={zone: f"z{1 + n % 2}"}) for n in range(4)],
        "boundPods": [
            pod(f"b{n}", cpu="100m", nodeName=f"n{n % 3}", **spreading) for n in range(5)
        ],
        "daemonSetPods": [pod("d1", cpu="50m"), pod("d2", cpu="70m")],
        "pods": [
            *(pod(f"p{n}", cpu=f"{100 + 150 * (n % 7)}m") for n in range(40)),
            *(pod(f"s{n}", topologySpreadConstraints=spread(zone), **spreading) for n in range(5)),
            *(
                pod(f"x{n}", affinity=apart("x"), metadata={"labels": {"app": "x"}})
                for n in range(3)
            ),
            *(pod(f"t{n}", tolerations=[{"key": "t", "operator": "Exists"}]) for n in range(3)),
            pod("picky", nodeSelector={"example.com/team": "blue"}),
        ],
    }  # fmt: skip


def two_zones():
    return [
        instance_type(
            item["name"], item["resources"]["cpu"], item["resources"]["memory"],
            *(
                offering(item["offerings"][0]["Price"] * factor, zone=zone, capacity_type=kind)
                for zone in ("z1", "z2")
                for kind, factor in (("on-demand", 1), ("spot", 0.4))
            ),
        )
        for item in TYPES
    ]  # fmt: skip


def test_the_order_of_files_keys_lists_and_offerings_changes_nothing(run, tmp_path):
    """Only names, ages and prices decide."""
    texts = set()
    for seed in range(4):
        order = random.Random(seed)
        cluster, types = mixed_cluster(), two_zones()
        for listed in (*cluster.values(), types, *(item["offerings"] for item in types)):
            order.shuffle(listed)
        keys = order.sample(sorted(cluster), len(cluster))
        half = write(tmp_path / "half.json", {key: cluster[key] for key in keys[:3]})
        rest = write(tmp_path / "rest.json", {key: cluster[key] for key in keys[3:]})
        sold = write(tmp_path / "sold.json", types)
        document = json.loads(run("--instance-types-file", sold, "-o", "json", half, rest).out)
        assert document.pop("timings")
        texts.add(json.dumps(document))

    assert len(texts) == 1
    assert {"shop/picky"} == set(document["unschedulable"])
    assert len(document["nodeClaims"]) > 1


def test_the_same_bytes_in_any_process(program, tmp_path):
    """For the hash seed of this process and another one; apart from timings."""
    file = write(tmp_path / "all.json", mixed_cluster())
    sold = write(tmp_path / "sold.json", two_zones())
    arguments = [
        "plan", "--offline", str(file), "-o", "json", "--instance-types-file", str(sold),
    ]  # fmt: skip
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    ended = subprocess.run(
        [sys.executable, "-c", "from karpenter_core.cli.main import main; main()", *arguments],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    outputs = set()
    for text in (ended.stdout, program(*arguments).out):
        head, separator, timings = text.partition('  "timings"')
        assert separator
        assert set(json.loads("{" + separator + timings)["timings"]) == {
            "readSeconds", "solveSeconds",
        }  # fmt: skip
        outputs.add(head)

    assert len(outputs) == 1


def test_every_key_of_the_contract_is_there_and_no_other(plan, tmp_path):
    """Tools that read the JSON may rely on both."""
    document = plan("--instance-types-file", write(tmp_path / "sold.json", two_zones()),
                 write(tmp_path / "all.json", mixed_cluster()))  # fmt: skip

    assert set(document) == {"nodeClaims", "existingNodes", "unschedulable", "cost", "timings"}
    for claim in document["nodeClaims"]:
        assert set(claim) == {"nodePool", "pods", "instanceTypes", "cheapest", "requirements"}
        assert set(claim["cheapest"]) == {"instanceType", "zone", "capacityType", "price"}
        assert claim["instanceTypes"][0] == claim["cheapest"]["instanceType"]
        assert all(set(item) == {"key", "operator", "values"} for item in claim["requirements"])
    assert set(document["cost"]) == {"hourly", "lowerBound", "firstFit"}
    for why in document["unschedulable"].values():
        assert set(why) == {"message", "pools"}
        assert all(
            set(item) == {"constraint", "detail", "closest"} for item in why["pools"].values()
        )
    for pods in (*document["existingNodes"].values(), *(c["pods"] for c in document["nodeClaims"])):
        assert pods == sorted(pods)
    assert list(document["unschedulable"]) == sorted(document["unschedulable"])
    prices = [claim["cheapest"]["price"] for claim in document["nodeClaims"]]
    assert document["cost"]["hourly"] == pytest.approx(sum(prices))


@pytest.mark.parametrize("packing", ["value", "first-fit"])
def test_every_pod_that_waits_is_in_one_place(plan, tmp_path, packing):
    """On a new node, on an existing one, or pending with a reason."""
    cluster = mixed_cluster()
    file = write(tmp_path / "all.json", cluster)

    document = plan("--instance-types-file", write(tmp_path / "sold.json", two_zones()),
                 "--packing", packing, file)  # fmt: skip

    places = [
        *(pod for claim in document["nodeClaims"] for pod in claim["pods"]),
        *(pod for pods in document["existingNodes"].values() for pod in pods),
        *document["unschedulable"],
    ]
    assert sorted(places) == sorted(f"shop/{p['metadata']['name']}" for p in cluster["pods"])
    if packing == "first-fit":
        assert document["cost"]["hourly"] == document["cost"]["firstFit"]


def test_costs_are_compared_where_there_is_something_to_compare(plan, tmp_path):
    """No bound without nodes, nor where a pool has minValues."""
    key = "node.kubernetes.io/instance-type"
    demanding = pool(
        template={"requirements": [{"key": key, "operator": "Exists", "minValues": 2}]}
    )

    nothing = plan(write(tmp_path / "nothing.yaml", POOL, node("old"), pod("a")))["cost"]
    types = plan(write(tmp_path / "types.yaml", demanding, pod("a")))["cost"]
    large = plan(write(tmp_path / "large.yaml", POOL, pod("a", cpu="15")))["cost"]

    assert nothing == {"hourly": 0.0, "lowerBound": None, "firstFit": 0.0}
    assert types == {"hourly": 0.1, "lowerBound": None, "firstFit": 0.1}
    assert 0 < large["lowerBound"] <= large["hourly"] == large["firstFit"] == 1.0


def overlay(name, requirement=None, **spec):
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": name},
        "spec": {"requirements": [] if requirement is None else [requirement], **spec},
    }


LARGE = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large"]}


def test_overlays_in_the_files_change_prices_and_say_so(run, plan, tmp_path):
    file = write(
        tmp_path / "all.yaml", POOL, pod("b", cpu="3"), overlay("cut", LARGE, price="0.01")
    )

    (claim,) = plan(file)["nodeClaims"]
    cheapest = claim["cheapest"]
    assert (cheapest["instanceType"], cheapest["price"]) == ("large", 0.01)
    assert cheapest["listPrice"] > 0.1
    assert cheapest["priceSource"] == 'NodeOverlay "cut"'
    assert "ignored" not in run(file).err


def test_an_overlay_that_is_not_applied_is_noted(run, tmp_path):
    file = write(
        tmp_path / "all.yaml",
        POOL,
        pod("b", cpu="3"),
        overlay("a", price="1"),
        overlay("b", price="2"),
        overlay("c", {"key": f"a/{'b' * 70}", "operator": "Exists"}),
    )

    said = run(file).err
    assert 'NodeOverlay "a" is not applied: it conflicts with another one of its weight' in said
    assert 'NodeOverlay "c" is not applied: requirements[0]' in said
    assert 'NodeOverlay "b"' not in said.replace('"b" changes', "")


def test_an_overlay_that_its_definition_refuses_is_refused(run, tmp_path):
    file = write(tmp_path / "all.yaml", POOL, overlay("a", price="1,5"))
    assert "spec.price" in run(file, code=2).err


def test_commitments_are_used_as_far_as_they_go(run, plan, tmp_path):
    """The offering names its list price and the commitment."""
    option = paid_commitment()
    file = write(tmp_path / "cluster.yaml", POOL, pod("one", cpu="1"))

    (claim,) = plan(file, option)["nodeClaims"]

    assert claim["instanceTypes"] == ["large"]
    assert claim["cheapest"]["price"] == 0
    assert claim["cheapest"]["listPrice"] == 1.0
    assert claim["cheapest"]["priceSource"] == 'commitment "paid"'
    text = run(file, option)
    assert 'commitment "paid": 0 of 1 nodes is used before this plan' in " ".join(text.err.split())
