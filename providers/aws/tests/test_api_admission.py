"""EC2NodeClass at the API server: refusals, defaults, and what a model reads of it.

Acceptance cases 1-18.
"""

from __future__ import annotations

from functools import cache

import pytest

from karpenter_core.api.crd import render_crd
from karpenter_core.api.schema import SchemaValidator
from karpenter_provider_aws.api.nodeclass import EC2NodeClass, MetadataOptions
from providers.aws.tests.admission_cases import CASES, KUBELET, UPDATE_CASES, node_class


@cache
def validator() -> SchemaValidator:
    version = render_crd(EC2NodeClass)["spec"]["versions"][0]
    return SchemaValidator(version["schema"]["openAPIV3Schema"])


def refused_at(obj: dict, old: dict | None = None) -> set[str]:
    checker = validator()
    stored = None if old is None else checker.default(old)
    return {error.path for error in checker.validate(checker.default(obj), stored)}


def named(case) -> str:
    return f"{case.number}-{case.name}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_node_class_is_judged_at_its_field(case):
    assert refused_at(case.object) == (set() if case.field is None else {case.field})


@pytest.mark.parametrize("case", UPDATE_CASES, ids=named)
def test_no_field_is_immutable(case):
    """Case 2."""
    assert refused_at(case.new, case.old) == set()


@pytest.mark.parametrize("case", [case for case in CASES if case.field is None], ids=named)
def test_accepted_objects_are_read_and_written_alike(case):
    stored = validator().default(case.object)

    read = EC2NodeClass.model_validate(stored)

    assert read.model_dump(mode="json", exclude_unset=True)["spec"] == stored["spec"]
    assert read == EC2NodeClass.model_validate(case.object)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name not in {"no device index", "subnet terms null"}
             and case.name != "enclaves neither on nor off"], ids=named
)  # fmt: skip
def test_refused_objects_are_still_read(case):
    """It may be stored already, let in by an API server with another CRD."""
    EC2NodeClass.model_validate(case.object)


def test_metadata_options_are_filled_in():
    """Case 11: as a whole, and each one beside others."""
    options = {
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    }

    bare = validator().default(node_class())
    partial = validator().default(node_class(metadataOptions={"httpTokens": "optional"}))

    assert bare["spec"]["metadataOptions"] == options
    assert partial["spec"]["metadataOptions"] == {**options, "httpTokens": "optional"}
    assert EC2NodeClass.model_validate(node_class()).spec.metadata_options == MetadataOptions()
    assert EC2NodeClass.model_validate(bare).spec.metadata_options == MetadataOptions()


def test_nothing_else_is_filled_in():
    """GitOps tools find the fields that the user wrote, and no others."""
    stored = validator().default(node_class())

    assert stored["spec"].keys() - node_class()["spec"].keys() == {"metadataOptions"}


def test_kubelet_is_stored_unaltered():
    """Case 18: unknown keys and nested ones."""
    stored = validator().default(node_class(kubelet=KUBELET))

    assert stored["spec"]["kubelet"] == KUBELET
    assert refused_at(node_class(kubelet=KUBELET)) == set()
    assert EC2NodeClass.model_validate(stored).spec.kubelet == KUBELET


@pytest.mark.parametrize("field", ["unknownField", "subnetSelector"])
def test_an_unknown_field_is_dropped(field):
    stored = validator().default(node_class(**{field: "x"}))

    assert field not in stored["spec"]


def test_status_keeps_discovered_resources():
    status = {
        "subnets": [{"id": "subnet-1", "zone": "us-east-1a", "zoneID": "use1-az1"}],
        "securityGroups": [{"id": "sg-1", "name": "web"}],
        "amis": [
            {
                "id": "ami-1",
                "name": "web-1",
                "requirements": [
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                    {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "DoesNotExist"},
                ],
            }
        ],
        "capacityReservations": [
            {
                "id": "cr-1",
                "availabilityZone": "us-east-1a",
                "instanceType": "m5.large",
                "instanceMatchCriteria": "open",
                "ownerID": "012345678901",
                "reservationType": "default",
                "interruptible": False,
                "state": "active",
                "endTime": "2030-01-01T00:00:00Z",
            }
        ],
        "instanceProfile": "prod_123",
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Ready",
                "message": "",
                "lastTransitionTime": "2024-01-01T00:00:00Z",
                "observedGeneration": 1,
            }
        ],
    }
    obj = {**node_class(), "status": status}

    stored = validator().default(obj)
    read = EC2NodeClass.model_validate(stored)

    assert stored["status"] == status
    assert refused_at(obj) == set()
    assert read.status.model_dump(mode="json", exclude_unset=True) == status


def test_a_reservation_is_active_and_on_demand_unless_it_says_otherwise():
    found = {
        "id": "cr-1",
        "availabilityZone": "us-east-1a",
        "instanceType": "m5.large",
        "instanceMatchCriteria": "open",
        "ownerID": "012345678901",
    }
    obj = {**node_class(), "status": {"capacityReservations": [found]}}

    stored = validator().default(obj)["status"]["capacityReservations"]
    (read,) = EC2NodeClass.model_validate(obj).status.capacity_reservations

    assert stored == [{**found, "reservationType": "default", "state": "active"}]
    assert (read.reservation_type, read.state, read.interruptible) == ("default", "active", None)
