"""The CRD of AKSNodeClass: what `kubectl` and GitOps tools see of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from karpenter_core.api.crd import crd_file_name, render_crd, render_yaml
from karpenter_core.testing.crd_facts import facts_of
from karpenter_provider_azure.api.nodeclass import AKSNodeClass

COMMITTED = Path(__file__).parents[3] / "crds" / "karpenter.azure.com_aksnodeclasses.yaml"


def facts(number: int = 0) -> dict[str, Any]:
    crd = render_crd(AKSNodeClass)
    versions = crd["spec"]["versions"]
    return facts_of({**crd, "spec": {**crd["spec"], "versions": [versions[number]]}})


def test_the_committed_definition_is_that_of_the_model():
    assert crd_file_name(AKSNodeClass) == COMMITTED.name
    assert COMMITTED.read_text(encoding="utf-8") == render_yaml(AKSNodeClass)
    assert yaml.safe_load(COMMITTED.read_text(encoding="utf-8")) == render_crd(AKSNodeClass)


def test_names_are_the_published_ones():
    assert facts()["names"] == {
        "categories": ["karpenter", "nap"],
        "kind": "AKSNodeClass",
        "listKind": "AKSNodeClassList",
        "plural": "aksnodeclasses",
        "shortNames": ["aksnc", "aksncs"],
        "singular": "aksnodeclass",
    }
    assert facts()["scope"] == "Cluster"
    assert facts()["subresources"] == {"status": {}}


def test_columns_are_the_published_ones():
    assert [
        (column["name"], column["type"], column.get("priority", 0)) for column in facts()["columns"]
    ] == [("Ready", "string", 0), ("Age", "date", 0), ("ImageFamily", "string", 1)]


def test_the_deprecated_version_has_the_fields_of_the_stored_one():
    # case 15
    stored, deprecated = render_crd(AKSNodeClass)["spec"]["versions"]

    assert (stored["name"], stored["storage"], stored["served"]) == ("v1beta1", True, True)
    assert (deprecated["name"], deprecated["storage"], deprecated["served"]) == (
        "v1alpha2",
        False,
        True,
    )
    assert deprecated["deprecated"]
    assert deprecated["deprecationWarning"] == "use v1beta1.AKSNodeClass instead"
    assert facts(0)["fields"] == facts(1)["fields"]


def test_defaults_are_the_published_ones():
    found = {
        path.removeprefix(".spec."): field["default"]
        for path, field in facts()["fields"].items()
        if "default" in field
    }

    assert found == {
        "osDiskSizeGB": 128,
        "imageFamily": "Ubuntu",
        "gpu.mode": "Driver",
        "kubelet.cpuManagerPolicy": "none",
        "kubelet.cpuCFSQuota": True,
        "kubelet.cpuCFSQuotaPeriod": "100ms",
        "kubelet.topologyManagerPolicy": "none",
        "kubelet.containerLogMaxSize": "50Mi",
        "kubelet.containerLogMaxFiles": 5,
    }


def test_only_local_dns_has_required_fields():
    required = {
        path: field["required"]
        for path, field in facts()["fields"].items()
        if path.startswith(".spec") and "required" in field
    }
    zone = [
        *("cacheDuration", "forwardDestination", "forwardPolicy", "maxConcurrent", "protocol"),
        *("queryLogging", "serveStale", "serveStaleDuration", "zone"),
    ]

    assert required == {
        ".spec.localDNS": ["kubeDNSOverrides", "mode", "vnetDNSOverrides"],
        ".spec.localDNS.kubeDNSOverrides[]": zone,
        ".spec.localDNS.vnetDNSOverrides[]": zone,
    }


def test_the_fields_of_the_spec_are_the_published_ones():
    top = {
        path.removeprefix(".spec.")
        for path in facts()["fields"]
        if path.startswith(".spec.") and path.count(".") == 2 and not path.endswith("]")
    }

    assert top == {
        *("artifactStreaming", "fipsMode", "gpu", "imageFamily", "kubelet", "linuxOSConfig"),
        *("localDNS", "maxPods", "osDiskSizeGB", "security", "tags", "vnetSubnetID"),
    }


def test_every_field_is_described():
    def bare(part: dict[str, Any], path: str) -> list[str]:
        found: list[str] = []
        for name, child in part.get("properties", {}).items():
            here = f"{path}.{name}"
            if "description" not in child and here != ".metadata":
                found.append(here)
            found += bare(child, here) + bare(child.get("items", {}), here)
        return found

    version = render_crd(AKSNodeClass)["spec"]["versions"][0]

    assert bare(version["schema"]["openAPIV3Schema"], "") == []
