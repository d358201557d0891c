"""Claims, classes and slices of devices are read as the API writes them."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from karpenter_core.api.devices import DeviceVersion
from karpenter_core.kube.resources import (
    DEVICE_CLASSES,
    DEVICE_KINDS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from karpenter_core.kube.wire.codecs import Codecs
from karpenter_core.kube.wire.kind_groups import KindGroup

CODECS = Codecs(groups={KindGroup.DEVICES})
META = {"name": "x", "namespace": "default", "uid": "u", "resourceVersion": "7"}


def read(kind, **fields):
    return CODECS.for_kind(kind).decode(json.dumps({"metadata": META, **fields}).encode())


def claim(*, requests=None, constraints=None, **spec):
    devices = {"requests": requests or [], "constraints": constraints or [], **spec}
    return read(RESOURCE_CLAIMS, spec={"devices": devices})


def exactly(**fields):
    return {"name": "gpu", "exactly": {"deviceClassName": "gpu", **fields}}


def test_kinds_of_devices_are_read_on_demand_only():
    assert set(DEVICE_KINDS) <= set(CODECS.kinds)
    assert not set(DEVICE_KINDS) & set(Codecs().kinds)


def test_a_claim_is_read_with_its_requests_and_constraints():
    found = claim(
        requests=[
            exactly(
                count=2,
                selectors=[{"cel": {"expression": "true"}}],
                tolerations=[{"key": "k", "operator": "Exists"}],
                capacity={"requests": {"memory": "1Gi"}},
            ),
            {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "b"}]},
            exactly(allocationMode="All"),
        ],
        constraints=[{"matchAttribute": "x/numa", "requests": ["gpu"]}],
        config=[{"opaque": {"driver": "d", "parameters": {}}}],
    )
    assert (found.unsupported, found.key, found.resource_version) == ("", "default/x", 7)
    first, either, every = found.requests
    assert first.alternatives[0].count == 2
    assert first.alternatives[0].selectors == ("true",)
    assert first.alternatives[0].capacity == (("memory", Decimal(2**30)),)
    assert (either.has_subrequests, either.alternatives[0].count) == (True, 1)
    assert every.alternatives[0].count is None
    assert found.constraints[0].match_attribute == "x/numa"


def test_a_template_is_read_like_the_claims_that_are_generated_from_it():
    devices = {"requests": [exactly(count=2)], "constraints": [{"matchAttribute": "x/numa"}]}
    found = read(RESOURCE_CLAIM_TEMPLATES, spec={"spec": {"devices": devices}})
    same = claim(**devices)
    assert (found.key, found.unsupported) == ("default/x", "")
    assert (found.requests, found.constraints) == (same.requests, same.constraints)
    odd = read(RESOURCE_CLAIM_TEMPLATES, spec={"spec": {"devices": {"future": 1}}})
    assert "unknown field `future`" in odd.unsupported


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"requests": [exactly(magic=True)]}, "unknown field `magic`"),
        ({"requests": [{"name": "gpu"}]}, "neither exactly nor firstAvailable"),
        ({"requests": [exactly(allocationMode="Some")]}, 'allocationMode "Some"'),
        ({"constraints": [{"distinctAttribute": "x/y"}]}, "distinctAttribute"),
        ({"constraints": [{"sameAttribute": "x/y"}]}, "unknown field `sameAttribute`"),
        ({"requests": [exactly(selectors=[{"rego": "x"}])]}, "unknown field `rego`"),
    ],
)
def test_a_claim_of_an_unknown_form_is_kept_with_the_reason(fields, text):
    found = claim(**fields)
    assert text in found.unsupported
    assert found.requests == ()


def test_the_allocation_of_a_claim_is_read_whatever_its_spec():
    result = {
        "request": "gpu",
        "driver": "d.example.com",
        "pool": "p",
        "device": "gpu-0",
        "shareID": "s",
        "consumedCapacity": {"memory": "2"},
        "newField": 1,
    }
    field = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    status = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-uid"}],
    }
    found = read(RESOURCE_CLAIMS, spec={"future": {}}, status=status)
    assert found.unsupported
    assert found.is_allocated
    assert found.devices[0].consumed == (("d.example.com/memory", Decimal(2)),)
    assert found.node_terms[0].match_fields[0].values == ("node-1",)
    assert found.reserved_for[0].is_pod


def test_a_slice_is_read_with_its_devices():
    device = {
        "name": "gpu-0",
        "attributes": {
            "model": {"string": "a"},
            "other.com/idx": {"int": 0},
            "ok": {"bool": False},
            "v": {"version": "1.2.3"},
        },
        "capacity": {
            "memory": {
                "value": "8Gi",
                "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}},
            }
        },
        "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}}],
        "taints": [{"key": "k", "effect": "NoSchedule"}],
        "allowMultipleAllocations": True,
    }
    found = read(
        RESOURCE_SLICES,
        spec={
            "driver": "d.com",
            "nodeName": "n",
            "pool": {"name": "p", "generation": 3, "resourceSliceCount": 2},
            "devices": [device],
            "sharedCounters": [{"name": "c", "counters": {"m": {"value": "4"}}}],
        },
    )
    assert (found.driver, found.pool, found.generation, found.slice_count) == ("d.com", "p", 3, 2)
    (one,) = found.devices
    assert dict(one.attributes) == {
        "d.com/model": "a",
        "other.com/idx": 0,
        "d.com/ok": False,
        "d.com/v": DeviceVersion(text="1.2.3"),
    }
    assert one.capacity[0].minimum == one.capacity[0].default == Decimal(2**30)
    assert one.counter_uses[0].counters == (("m", Decimal(1)),)
    assert one.is_shareable
    assert found.counter_sets[0].counters == (("m", Decimal(4)),)


def test_a_device_of_an_unknown_form_is_marked_and_others_are_read():
    attributes = {"links": {"ints": [1, 2]}}
    devices = [{"name": "a", "attributes": attributes}, {"name": "b"}, {"name": "c", "x": 1}]
    found = read(RESOURCE_SLICES, spec={"driver": "d", "devices": devices})
    assert [bool(one.unsupported) for one in found.devices] == [True, False, True]


def test_a_class_is_read_and_one_of_an_unknown_form_is_marked():
    spec = {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "x/y"}
    found = read(DEVICE_CLASSES, spec=spec)
    assert (found.selectors, found.extended_resource) == (("true",), "x/y")
    assert "unknown field" in read(DEVICE_CLASSES, spec={"filters": []}).unsupported


def test_a_pod_names_its_claims_and_its_status_those_that_were_generated():
    spec = {
        "containers": [],
        "resourceClaims": [
            {"name": "own", "resourceClaimName": "mine"},
            {"name": "made", "resourceClaimTemplateName": "t"},
            {"name": "none", "resourceClaimTemplateName": "t"},
        ],
    }
    statuses = [{"name": "made", "resourceClaimName": "x-made-1"}, {"name": "none"}]
    found = read(PODS, spec=spec, status={"resourceClaimStatuses": statuses})
    assert found.shape.resource_claims == ("own", "made", "none")
    assert found.shape.resource_claim_names == {"own": "mine"}
    assert found.resource_claim_statuses == {"made": "x-made-1", "none": ""}
