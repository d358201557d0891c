"""`karpenter rbac` renders what the core and providers need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from karpenter_core.cli.main import main
from karpenter_core.cli.rbac import DEFAULT_LEASE, render_rbac
from karpenter_core.operator.options import OPTIONS
from karpenter_core.provider.contract import ObjectRead
from karpenter_provider_kwok.plugin import KwokProvider

FILES = Path(__file__).parents[2] / "charts" / "karpenter" / "files" / "rbac"


def rights(documents) -> set[tuple[str, ...]]:
    """Return namespace, group, resource, object and verb of each right in roles."""
    return {
        (document["metadata"].get("namespace", ""), group, resource, name, verb)
        for document in documents
        if document["kind"] in {"Role", "ClusterRole"}
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["rbac", *arguments])
    return ended.value.code or 0


def test_rendered_roles_equal_those_of_the_chart(capsys):
    assert run("--provider", "aws") == 0

    rendered = list(yaml.safe_load_all(capsys.readouterr().out))
    of_chart = [
        {
            "kind": "Role",
            "metadata": {"namespace": {"cluster": "", "release": "kube-system"}.get(where, where)},
            "rules": rules,
        }
        for name in ("core", "aws")
        for where, rules in yaml.safe_load((FILES / f"{name}.yaml").read_text()).items()
    ]
    assert rights(rendered) == rights(of_chart)


def test_reviews_of_tokens_are_permitted_only_by_option(capsys):
    assert run() == 0
    plain = rights(yaml.safe_load_all(capsys.readouterr().out))
    assert run("--metrics-token-auth") == 0
    added = rights(yaml.safe_load_all(capsys.readouterr().out)) - plain

    of_chart = yaml.safe_load((FILES / "metrics-token-auth.yaml").read_text())
    role = {"kind": "ClusterRole", "metadata": {}, "rules": of_chart["cluster"]}
    assert added == rights([role])
    assert added == {
        ("", "authentication.k8s.io", "tokenreviews", "", "create"),
        ("", "authorization.k8s.io", "subjectaccessreviews", "", "create"),
    }


def test_restarts_of_rollouts_are_permitted_only_by_option(capsys):
    assert run() == 0
    plain = rights(yaml.safe_load_all(capsys.readouterr().out))
    assert run("--surge-moves") == 0
    added = rights(yaml.safe_load_all(capsys.readouterr().out)) - plain

    of_chart = yaml.safe_load((FILES / "surge-moves.yaml").read_text())
    role = {"kind": "ClusterRole", "metadata": {}, "rules": of_chart["cluster"]}
    assert {
        ("", "apps", "deployments", "", "get"),
        ("", "apps", "deployments", "", "patch"),
    } == added
    assert added <= rights([role])


def test_owners_that_block_their_deletion_may_be_named():
    """OpenShift's API server refuses such a reference (OwnerReferencesPermissionEnforcement) without."""
    rendered = rights(render_rbac([], namespace="system", service_account="scaler"))

    for owner in ("nodepools", "nodeclaims"):
        assert ("", "karpenter.sh", f"{owner}/finalizers", "", "update") in rendered


def test_every_role_is_bound_to_the_service_account():
    documents = render_rbac([], namespace="system", service_account="scaler")

    roles = [each for each in documents if each["kind"] in {"Role", "ClusterRole"}]
    bindings = [each for each in documents if each["kind"].endswith("Binding")]
    assert [(each["kind"], each["metadata"]) for each in roles] == [
        (each["roleRef"]["kind"], each["metadata"]) for each in bindings
    ]
    subject = {"kind": "ServiceAccount", "name": "scaler", "namespace": "system"}
    assert all(each["subjects"] == [subject] for each in bindings)


def test_declared_reads_are_granted_where_they_are():
    info = replace(
        KwokProvider().karpenter_provider_info(),
        reads=(
            ObjectRead(resource="secrets", namespace="vault", name="bootstrap"),
            ObjectRead(resource="networkpolicies", group="networking.k8s.io"),
        ),
    )
    before = render_rbac(
        [replace(info, reads=())], namespace="kube-system", service_account="karpenter"
    )
    after = render_rbac([info], namespace="kube-system", service_account="karpenter")

    assert rights(after) - rights(before) == {
        ("vault", "", "secrets", "bootstrap", "get"),
        ("", "networking.k8s.io", "networkpolicies", "", "list"),
    }


def test_only_the_own_lease_may_be_read_and_changed(capsys):
    """In kube-system there are those of Kubernetes' own controllers."""
    assert run("--leader-election-name", "mine") == 0

    rendered = rights(yaml.safe_load_all(capsys.readouterr().out))
    assert {(name, verb) for _, _, resource, name, verb in rendered if resource == "leases"} == {
        ("", "create"),
        ("mine", "get"),
        ("mine", "patch"),
    }


def test_the_lease_is_that_of_the_settings():
    (option,) = (each for each in OPTIONS if each.flag == "leader-election-name")

    assert option.default == DEFAULT_LEASE


def test_only_a_provider_that_creates_nodes_may_create_them():
    info = KwokProvider().karpenter_provider_info()
    kwok = render_rbac([info], namespace="kube-system", service_account="karpenter")
    others = render_rbac(
        [replace(info, creates_nodes=False)], namespace="kube-system", service_account="karpenter"
    )

    assert rights(kwok) - rights(others) == {
        ("", "", "nodes", "", "create"),
        ("", "", "nodes/status", "", "patch"),
    }


def test_an_unknown_provider_is_named(capsys):
    assert run("--provider", "moon") != 0
    assert 'plug-in "moon" is not installed (installed: ' in capsys.readouterr().err


def test_an_observer_gets_permissions_to_read_only(capsys):
    assert run("--provider", "kwok", "--observe") == 0
    observing = rights(yaml.safe_load_all(capsys.readouterr().out))
    assert run("--provider", "kwok") == 0
    running = rights(yaml.safe_load_all(capsys.readouterr().out))

    assert {right[-1] for right in observing} == {"get", "list", "watch"}
    assert {right for right in running if right[-1] in {"list", "watch"}} == {
        right for right in observing if right[-1] != "get" and "leases" not in right
    }
