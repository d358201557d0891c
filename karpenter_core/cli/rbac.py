"""`karpenter rbac`: renders the roles that core and providers declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from karpenter_core.cli.manifest_format import ManifestFormat, json_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.doctor.permissions import Permission
    from karpenter_core.provider.contract import ProviderInfo

__all__ = ["DEFAULT_LEASE", "rbac", "render_rbac"]

DEFAULT_LEASE: Final = "karpenter-leader-election"
"""Default of `--leader-election-name`; named again here, since settings are slow to import."""
_GROUP = "rbac.authorization.k8s.io"


def rbac(
    provider: Annotated[
        list[str] | None,
        typer.Option(help="Add the permissions of this provider; can be repeated."),
    ] = None,
    namespace: Annotated[
        str, typer.Option(help="The namespace of the controller, its service account and lease.")
    ] = "kube-system",
    service_account: Annotated[
        str, typer.Option(help="The service account that the controller runs under.")
    ] = "karpenter",
    leader_election_name: Annotated[
        str, typer.Option(help="The Lease of `karpenter run --leader-election-name`.")
    ] = DEFAULT_LEASE,
    observe: Annotated[
        bool,
        typer.Option(
            "--observe", help="Grant only the read permissions of `karpenter run --observe`."
        ),
    ] = False,
    metrics_token_auth: Annotated[
        bool,
        typer.Option(
            "--metrics-token-auth",
            help="Add the permissions of `karpenter run --metrics-token-auth`.",
        ),
    ] = False,
    surge_moves: Annotated[
        bool,
        typer.Option("--surge-moves", help="Add the permissions of `karpenter run --surge-moves`."),
    ] = False,
    output: Annotated[
        ManifestFormat, typer.Option("--output", "-o", help="Format of what is printed.")
    ] = ManifestFormat.YAML,
) -> None:
    """Print the roles and bindings that this version needs.

    Needs no cluster, and grants nothing: pass the output to kubectl. The service account is not part of it.
    """
    import yaml

    from karpenter_core.provider.host.manager import load_plugins, missing_plugin

    providers = load_plugins().providers
    for name in provider or ():
        if name not in providers:
            raise missing_plugin(name, installed=providers)
    infos = [providers[name].info for name in dict.fromkeys(provider or ())]
    documents = render_rbac(
        infos,
        namespace=namespace,
        service_account=service_account,
        lease_name=leader_election_name,
        observe=observe,
        metrics_token_auth=metrics_token_auth,
        surge_moves=surge_moves,
    )
    if output is ManifestFormat.JSON:
        print(json_list(documents))
    else:
        print(yaml.safe_dump_all(documents, sort_keys=False), end="")


def render_rbac(
    infos: Iterable[ProviderInfo],
    *,
    namespace: str,
    service_account: str,
    lease_name: str = DEFAULT_LEASE,
    observe: bool = False,
    metrics_token_auth: bool = False,
    surge_moves: bool = False,
) -> list[JsonObject]:
    """Return roles and bindings for the core and these providers, as JSON values.

    They permit what `karpenter run` needs with every setting but `metrics_token_auth` and `surge_moves`,
    which are given apart, and what `karpenter doctor` reads: one ClusterRole, and a Role in each namespace in which
    something is needed. With `observe` they permit what `karpenter run --observe` and
    `karpenter doctor --take-over` need, which is to read.
    """
    from karpenter_core.cli.doctor.permissions import (
        FACT_PERMISSIONS,
        Permission,
        needed_permissions,
    )
    from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES
    from karpenter_core.kube.wire.codecs import Codecs
    from karpenter_core.kube.wire.kind_groups import EVERY_KIND_GROUP

    every_info = tuple(infos)
    models = [model for info in every_info for model in info.node_classes]
    needed = needed_permissions(
        Codecs(models, groups=EVERY_KIND_GROUP).kinds,
        models,
        lease_namespace=namespace,
        lease_name=lease_name,
        reads=[read for info in every_info for read in info.reads],
        creates_nodes=any(info.creates_nodes for info in every_info),
        observe=observe,
        metrics_token_auth=metrics_token_auth,
        surge_moves=surge_moves,
    )
    leader = Permission("get", LEASES, namespace=namespace, name=lease_name)
    permissions = (
        *needed,
        *FACT_PERMISSIONS,
        Permission("get", CUSTOM_RESOURCE_DEFINITIONS),
        # A leader may hold a Lease of this name in any namespace.
        *([leader, Permission("list", LEASES)] if observe else []),
    )
    documents: list[JsonObject] = []
    for where in sorted({each.namespace for each in permissions}):
        kind = "Role" if where else "ClusterRole"
        metadata: JsonObject = {"name": service_account}
        if where:
            metadata["namespace"] = where
        here = [each for each in permissions if each.namespace == where]
        documents += [
            {
                "apiVersion": f"{_GROUP}/v1",
                "kind": kind,
                "metadata": metadata,
                "rules": _rules(here),
            },
            {
                "apiVersion": f"{_GROUP}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": service_account},
                "subjects": [
                    {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
                ],
            },
        ]
    return documents


def _rules(permissions: Sequence[Permission]) -> list[JsonObject]:
    """Return one rule for each resource or named object, in the order of the permissions."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for each in permissions:
        resource = "/".join(filter(None, (each.kind.plural, each.subresource)))
        verbs.setdefault((each.kind.group, resource, each.name), []).append(each.verb)
    rules: list[JsonObject] = []
    for (group, resource, name), permitted in verbs.items():
        rule: JsonObject = {
            "apiGroups": [group],
            "resources": [resource],
            "verbs": list(dict.fromkeys(permitted)),
        }
        if name:
            rule["resourceNames"] = [name]
        rules.append(rule)
    return rules
