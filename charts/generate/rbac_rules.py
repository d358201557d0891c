"""Splits what `karpenter rbac` renders into the permissions of the core and of each provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from charts.generate.settings_table import PROVIDERS
from karpenter_core.cli.rbac import render_rbac
from karpenter_core.provider.host.manager import load_plugins

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.provider.contract import ProviderInfo

__all__ = ["CLUSTER", "RELEASE", "rules_by_file"]

CLUSTER: Final = "cluster"
"""Rules of the ClusterRole."""
RELEASE: Final = "release"
"""Rules in the namespace of the release; other keys are names of namespaces."""


def rules_by_file() -> dict[str, dict[str, list[JsonObject]]]:
    """Return rules by namespace, for `core`, and what each provider and setting needs besides.

    Those of `karpenter run --observe` are in the folder `observe`. The namespace of the controller must
    be `RELEASE` (variable SYSTEM_NAMESPACE) when plug-ins are loaded: some declare reads there.
    """
    result: dict[str, dict[str, list[JsonObject]]] = {}
    for folder, observe in (("", False), ("observe/", True)):
        core = _rules([], observe=observe)
        result[f"{folder}core"] = core
        for name in PROVIDERS:
            own = _rules([load_plugins().providers[name].info], observe=observe)
            result[f"{folder}{name}"] = _beside(core, own)
    result["metrics-token-auth"] = _beside(
        result["core"], _rules([], observe=False, metrics_token_auth=True)
    )
    result["surge-moves"] = _beside(result["core"], _rules([], observe=False, surge_moves=True))
    return result


def _beside(
    core: dict[str, list[JsonObject]], rules_by_namespace: dict[str, list[JsonObject]]
) -> dict[str, list[JsonObject]]:
    """Return the rules that the core does not have."""
    return {
        namespace: left
        for namespace, rules in rules_by_namespace.items()
        if (left := [rule for rule in rules if rule not in core.get(namespace, [])])
    }


def _rules(
    infos: Iterable[ProviderInfo],
    *,
    observe: bool,
    metrics_token_auth: bool = False,
    surge_moves: bool = False,
) -> dict[str, list[JsonObject]]:
    documents = render_rbac(
        infos,
        namespace=RELEASE,
        service_account="karpenter",
        observe=observe,
        metrics_token_auth=metrics_token_auth,
        surge_moves=surge_moves,
    )
    return {
        document["metadata"].get("namespace", CLUSTER): [dict(rule) for rule in document["rules"]]
        for document in documents
        if document["kind"] in {"Role", "ClusterRole"}
    }
