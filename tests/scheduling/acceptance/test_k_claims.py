"""Cases 162 to 166: the contents of a claim."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, OS
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.testing.builders import requirement_spec
from tests.scheduling.acceptance.catalogues import DEFAULT_TYPES, default_pool


def required(claim, key):
    return Requirements.from_specs(claim.spec.requirements).get(key).values


def test_case_162_pool_types_and_capacity_types(cluster):
    cluster.provision(cluster.pod())
    (claim,) = cluster.created
    assert required(claim, NODE_POOL) == {"default"}
    assert required(claim, CAPACITY_TYPE) == {"spot", "on-demand"}
    assert required(claim, INSTANCE_TYPE) == {item.name for item in DEFAULT_TYPES}


def test_case_162_the_pools_own_requirements(cluster):
    cluster.use(
        default_pool(
            requirements=[
                requirement_spec("custom-requirement-key", "In", "value"),
                requirement_spec("custom-requirement-key2", "In", "value"),
            ]
        )
    )
    cluster.provision(cluster.pod())
    (claim,) = cluster.created
    assert required(claim, "custom-requirement-key") == {"value"}
    assert required(claim, "custom-requirement-key2") == {"value"}
    assert required(claim, INSTANCE_TYPE) == {item.name for item in DEFAULT_TYPES}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (ARCH, "arm64", {"arm-instance-type"}),
        (ARCH, "amd64", {item.name for item in DEFAULT_TYPES} - {"arm-instance-type"}),
        (OS, "ios", {"arm-instance-type"}),
    ],
)
def test_case_163_only_types_that_match_the_requirements_of_pods(cluster, key, value, expected):
    cluster.provision(cluster.pod(where=[(key, "In", value)]))
    (claim,) = cluster.created
    assert required(claim, key) == {value}
    assert required(claim, INSTANCE_TYPE) == expected


def test_case_164_only_types_that_hold_the_requests(cluster):
    cluster.provision(cluster.pod(cpu="2", memory="1Mi"))
    (claim,) = cluster.created
    everything = {item.name for item in DEFAULT_TYPES}
    assert required(claim, INSTANCE_TYPE) == everything - {"small-instance-type"}


def test_case_165_owner_and_node_class(cluster):
    cluster.provision(cluster.pod())
    (claim,) = cluster.created
    (owner,) = claim.metadata.owner_references
    pool = cluster.snapshot.node_pools["default"]
    assert (owner.api_version, owner.kind, owner.name) == ("karpenter.sh/v1", "NodePool", "default")
    assert owner.uid == pool.uid
    assert owner.block_owner_deletion is True
    assert not owner.controller
    assert claim.spec.node_class_ref == pool.spec.template.spec.node_class_ref


def test_case_166_requests(cluster):
    cluster.provision(cluster.pod(cpu="1", memory="1Mi"))
    (claim,) = cluster.created
    requests = {name: str(amount) for name, amount in claim.spec.resources.requests.items()}
    assert requests == {"cpu": "1", "memory": "1Mi", "pods": "1"}
