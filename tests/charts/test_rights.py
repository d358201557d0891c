"""The service account of a release: its rights, its identity, and no secret."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from karpenter_core.cli.rbac import render_rbac
from karpenter_core.provider.contract import ObjectRead
from karpenter_core.provider.host.manager import load_plugins
from tests.charts.conftest import EVERY, PARTS
from tests.support.helm import (
    container_of,
    only,
    pod_of,
    render,
)


def rights(documents) -> set[tuple[str, ...]]:
    """Return namespace, group, resource, object and verb of each right in roles."""
    return {
        (document["metadata"].get("namespace", ""), group, resource, name, verb)
        for document in documents
        if document["kind"] in {"Role", "ClusterRole"}
        and not document["metadata"]["name"].endswith("-admin")
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


@EVERY
@pytest.mark.parametrize("namespace", ["kube-system", "karpenter"])
def test_the_account_has_exactly_the_rights_that_the_code_declares(values_of, name, namespace):
    infos = [info_of(each, namespace) for each in PARTS[name]]
    declared = render_rbac(infos, namespace=namespace, service_account="karpenter")

    assert rights(render(values_of(name), namespace=namespace)) == rights(declared)


def info_of(provider, namespace):
    """Return what the provider declares in a pod of this namespace."""
    info = load_plugins().providers[provider].info
    usual = os.environ.get("SYSTEM_NAMESPACE") or "kube-system"
    reads = tuple(
        ObjectRead(resource=it.resource, namespace=namespace, name=it.name)
        if (it.resource, it.namespace) == ("configmaps", usual)
        else it
        for it in info.reads
    )
    return replace(info, reads=reads)


@pytest.mark.parametrize("name", ["aws", "azure", "kwok"])
def test_an_observer_may_only_read(values_of, name):
    values = values_of(name)
    values.setdefault("settings", {})["observe"] = True
    infos = [info_of(each, "karpenter") for each in PARTS[name]]
    declared = render_rbac(infos, namespace="karpenter", service_account="karpenter", observe=True)

    rendered = rights(render(values))

    assert rendered == rights(declared)
    assert {verb for *_, verb in rendered} <= {"get", "list", "watch"}


@EVERY
def test_every_role_is_bound_to_the_account_that_the_pods_run_under(values_of, name):
    objects = render({**values_of(name), "fullnameOverride": "scaler"}, namespace="system")
    roles = {
        (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace"))
        for each in objects
        if each["kind"].endswith("Role") and not each["metadata"]["name"].endswith("-admin")
    }
    bindings = [each for each in objects if each["kind"].endswith("Binding")]
    account = only(objects, "ServiceAccount")["metadata"]

    assert {
        (each["roleRef"]["kind"], each["roleRef"]["name"], each["metadata"].get("namespace"))
        for each in bindings
    } == roles
    subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": "system"}
    assert all(each["subjects"] == [subject] for each in bindings)
    assert pod_of(objects)["spec"]["serviceAccountName"] == account["name"] == "scaler"


def test_the_lease_of_the_settings_is_the_one_that_may_be_changed(values_of):
    values = values_of("aws")
    values["settings"]["leaderElectionName"] = "mine"
    names = {(name, verb) for _, _, kind, name, verb in rights(render(values)) if kind == "leases"}

    assert names == {("", "create"), ("mine", "get"), ("mine", "patch")}


def test_rules_of_the_user_are_added(values_of):
    rule = {"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["list"]}

    added = rights(render({**values_of("aws"), "additionalClusterRoleRules": [rule]}))

    assert added - rights(render(values_of("aws"))) == {("", "example.com", "things", "", "list")}


def test_administrators_may_change_what_is_in_no_namespace_for_the_providers(values_of):
    (admin,) = (
        each
        for each in render(values_of("several"))
        if each["metadata"].get("labels", {}).get("rbac.authorization.k8s.io/aggregate-to-admin")
    )

    assert {resource for rule in admin["rules"] for resource in rule["resources"]} == {
        "nodepools",
        "nodeclaims",
        "nodeoverlays",
        "ec2nodeclasses",
        "ecsnodeclasses",
    }


def test_an_account_that_exists_is_used(values_of):
    values = {**values_of("aws"), "serviceAccount": {"create": False, "name": "there"}}
    objects = render(values)

    assert not any(each["kind"] == "ServiceAccount" for each in objects)
    assert pod_of(objects)["spec"]["serviceAccountName"] == "there"


def test_the_account_carries_the_identity_of_the_cloud(values_of):
    account = only(render(values_of("alibabacloud")), "ServiceAccount")

    assert account["metadata"]["annotations"] == {
        "pod-identity.alibabacloud.com/role-name": "karpenter"
    }


@EVERY
def test_no_secret_is_read_that_was_not_named(values_of, name):
    objects = render(values_of(name))
    named = values_of(name).get("credentialsSecret")

    assert not any(each["kind"] == "Secret" for each in objects)
    assert container_of(objects).get("envFrom", []) == (
        [{"secretRef": {"name": named}}] if named else []
    )
    assert not any("ACCESS_KEY" in each["name"] for each in container_of(objects)["env"])
