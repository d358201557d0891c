"""Tests that error codes are graded, and that answers are those of the SDK's models."""

from __future__ import annotations

import ast
from pathlib import Path

from azure.mgmt.compute.models import (
    CommunityGalleryImageVersion,
    DiskEncryptionSet,
    ResourceSku,
    Usage,
)

import karpenter_simulated_azure
from karpenter_simulated_azure.fidelity import CODES, Evidence

PACKAGE = Path(karpenter_simulated_azure.__file__).parent


def codes_of(path):
    """The codes that a module raises: the first argument of an error, if it is written out."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {
            "ArmFault",
            "CloudError",
        }:
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant):
                yield first.value


def test_every_code_of_the_package_is_graded():
    raised = {code for path in PACKAGE.glob("*.py") for code in codes_of(path)}

    assert {"SubnetIsFull", "SubscriptionNotFound"} <= raised
    assert raised - set(CODES) == set()


def test_codes_that_karpenter_handles_are_confirmed():
    assert CODES["ZonalAllocationFailed"] is Evidence.CONFIRMED
    assert CODES["NicInUse"] is Evidence.UNVERIFIED


# -- answers against the models of the SDK -----------------------------------------------------------


def departures(model, path=""):
    """List members of an answer that its model of the SDK does not know."""
    fields = {each._rest_name: name for name, each in model._attr_to_rest_field.items()}
    for name in model:
        if name not in fields:
            yield f"{path}.{name}"
            continue
        value = getattr(model, fields[name])
        items = value if isinstance(value, list) else [value]
        for item in items:
            if hasattr(item, "_attr_to_rest_field"):
                yield from departures(item, f"{path}.{name}")


def test_departures_are_reported_at_every_depth():
    wrong = {"name": "x", "locationInfo": [{"location": "x", "zoneDetails": [{"zone": "1"}]}]}

    assert list(departures(ResourceSku(wrong))) == [".locationInfo.zoneDetails.zone"]


def test_answers_have_only_members_that_the_sdk_knows(served):
    galleries, world = served.manager.galleries, served.world
    set_id = served.manager.cluster.add_disk_encryption_set("keys")
    definition = galleries.community_id("2404gen2containerd").rpartition("/versions/")[0]
    images = f"{world.subscription_path}/providers/Microsoft.Compute/locations/westus2" + (
        definition.replace("/CommunityGalleries/", "/communityGalleries/")
    )
    usages = served.subscription("Microsoft.Compute/locations/westus2/usages")
    skus = served.subscription("Microsoft.Compute/skus")

    found = {
        "sku": served.send("GET", skus, version="2021-07-01").body["value"],
        "usage": served.send("GET", usages).body["value"],
        "version": served.send("GET", f"{images}/versions").body["value"],
        "set": [served.send("GET", set_id).body],
    }

    models = {
        "sku": ResourceSku,
        "usage": Usage,
        "version": CommunityGalleryImageVersion,
        "set": DiskEncryptionSet,
    }
    wrong = {
        (name, each)
        for name, items in found.items()
        for item in items
        for each in departures(models[name](item))
    }
    assert wrong == set()
    assert all(found.values())
