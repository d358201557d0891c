"""`karpenter plan --offline --scheduler-config`: pods spread as the cluster's scheduler spreads."""

from __future__ import annotations

import json

import pytest
import yaml

ZONE = "topology.kubernetes.io/zone"
POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "general"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default",
                },
            }
        }
    },
}  # fmt: skip
REPLICA_SET = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"selector": {"matchLabels": {"app": "web"}}},
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"selector": {"app": "web"}},
}
CONFIG = json.dumps(
    {
        "podTopologySpread": {
            "defaultConstraints": [
                {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
            ]
        }
    }
)


def offering(zone, price):
    requirements = {"karpenter.sh/capacity-type": "on-demand", ZONE: zone}
    return {
        "Price": price,
        "Available": True,
        "Requirements": [
            {"key": key, "operator": "In", "values": [value]} for key, value in requirements.items()
        ],
    }


def pod(name, *, owned=True):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}
    requests = {"cpu": "500m", "memory": "512Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": {"app": "web"},
            "ownerReferences": [{**owner, "controller": True}] if owned else [],
        },
        "spec": {
            "containers": [{"name": "app", "image": "app", "resources": {"requests": requests}}]
        },
    }


@pytest.fixture
def run(capsys, tmp_path):
    from karpenter_core.cli.main import main

    types = tmp_path / "types.json"
    large = {"cpu": "16", "memory": "32Gi", "ephemeral-storage": "20Gi", "pods": "110"}
    types.write_text(
        json.dumps(
            [
                {
                    "name": "large",
                    "offerings": [offering("z1", 1.0), offering("z2", 1.1)],
                    "architecture": "amd64",
                    "operatingSystems": ["linux"],
                    "resources": large,
                }
            ]
        )
    )

    def call(*arguments, objects=(), code=0):
        file = tmp_path / "all.yaml"
        file.write_text(yaml.safe_dump_all([POOL, *objects]))
        with pytest.raises(SystemExit) as ended:
            main(
                [
                    *("plan", "--offline", "--instance-types-file", str(types), "-o", "json"),
                    *arguments,
                    str(file),
                ]
            )
        assert ended.value.code == code
        return capsys.readouterr()

    return call


@pytest.fixture
def zones(run):
    def call(*arguments, objects):
        claims = json.loads(run(*arguments, objects=objects).out)["nodeClaims"]
        return sorted((claim["cheapest"]["zone"], len(claim["pods"])) for claim in claims)

    return call


def test_pods_of_one_workload_spread_by_the_default(zones):
    """Cases 343 and 346: through the ReplicaSet, or a Service alone."""
    pods = [pod(f"web-{n}") for n in range(4)]
    loose = [pod(f"web-{n}", owned=False) for n in range(4)]
    spread = ["--scheduler-config", CONFIG]
    assert zones(*spread, objects=[*pods, REPLICA_SET]) == [("z1", 2), ("z2", 2)]
    assert zones(*spread, objects=[*loose, SERVICE]) == [("z1", 2), ("z2", 2)]


def test_without_configuration_or_countable_pods_nothing_spreads(zones):
    """Case 345."""
    pods = [pod(f"web-{n}") for n in range(4)]
    assert zones(objects=[*pods, REPLICA_SET]) == [("z1", 4)]
    assert zones("--scheduler-config", CONFIG, objects=pods) == [("z1", 4)]


def test_a_mistake_in_the_configuration_is_one_message(run):
    """Case 349."""
    shown = run("--scheduler-config", "spread: {}", objects=[pod("web-0")], code=2)
    assert 'scheduler-config: unknown field "spread"' in shown.err
