"""The option `--scheduler-config`: the cluster's default topology spread constraints.

The same constraints that an administrator gives the kube-scheduler's PodTopologySpread plug-in.
A mistake stops the start: a default that is silently dropped would place pods differently from
the scheduler that binds them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, cast

from karpenter_core.errors import SettingsError

__all__ = ["DefaultSpread", "parse_scheduler_config"]

_SOURCE: Final = "scheduler-config"
_POLICIES: Final = ("DoNotSchedule", "ScheduleAnyway")
_FIELDS: Final = frozenset(
    {"maxSkew", "topologyKey", "whenUnsatisfiable", "minDomains", "nodeAffinityPolicy",
     "nodeTaintsPolicy", "labelSelector", "matchLabelKeys"},
)  # fmt: skip
_QUALIFIED_NAME: Final = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultSpread:
    """One default constraint, for pods that have none of their own."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


def parse_scheduler_config(text: str) -> tuple[DefaultSpread, ...]:
    """Read the option's YAML or JSON; empty text means no defaults.

    Raises:
        SettingsError: it cannot be read, names unknown fields, or breaks a rule.
    """
    if not text.strip():
        return ()
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        message = f"{_SOURCE}: not YAML: {' '.join(str(error).split())}"
        raise SettingsError(message) from error
    root = _mapping(document, _SOURCE, {"podTopologySpread"})
    spread = _mapping(
        root.get("podTopologySpread") or {},
        f"{_SOURCE}: podTopologySpread",
        {"defaultConstraints"},
    )
    raw: object = spread.get("defaultConstraints") or []
    if not isinstance(raw, list):
        message = f"{_SOURCE}: defaultConstraints must be a list"
        raise SettingsError(message)
    constraints = tuple(
        _constraint(item, index) for index, item in enumerate(cast("list[object]", raw))
    )
    seen: set[tuple[str, str]] = set()
    for item in constraints:
        pair = (item.topology_key, item.when_unsatisfiable)
        if pair in seen:
            message = f"{_SOURCE}: duplicate constraint for {pair[0]} with {pair[1]}"
            raise SettingsError(message)
        seen.add(pair)
    return constraints


def _mapping(value: object, where: str, allowed: set[str] | frozenset[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        message = f"{where}: must be a mapping"
        raise SettingsError(message)
    mapping = cast("dict[str, object]", value)
    for key in mapping:
        if key not in allowed:
            message = f'{where}: unknown field "{key}"'
            raise SettingsError(message)
    return mapping


def _constraint(value: object, index: int) -> DefaultSpread:
    where = f"{_SOURCE}: defaultConstraints[{index}]"
    item = _mapping(value, where, _FIELDS)
    for refused in ("labelSelector", "matchLabelKeys"):
        if item.get(refused):
            message = f"{where}: {refused} may not be set on a default constraint"
            raise SettingsError(message)
    skew = item.get("maxSkew")
    if not isinstance(skew, int) or isinstance(skew, bool) or skew <= 0:
        message = f"{where}: maxSkew must be above zero, not {skew!r}"
        raise SettingsError(message)
    key = item.get("topologyKey")
    if not isinstance(key, str) or not _QUALIFIED_NAME.fullmatch(key):
        message = f"{where}: topologyKey must be a label key, not {key!r}"
        raise SettingsError(message)
    policy = item.get("whenUnsatisfiable")
    if policy not in _POLICIES:
        message = (
            f"{where}: whenUnsatisfiable must be one of {', '.join(_POLICIES)}, not {policy!r}"
        )
        raise SettingsError(message)
    domains = item.get("minDomains")
    if domains is not None and (not isinstance(domains, int) or domains <= 0):
        message = f"{where}: minDomains must be above zero, not {domains!r}"
        raise SettingsError(message)
    return DefaultSpread(
        topology_key=key,
        max_skew=skew,
        when_unsatisfiable=str(policy),
        min_domains=domains,
        node_affinity_policy=str(item.get("nodeAffinityPolicy") or "Honor"),
        node_taints_policy=str(item.get("nodeTaintsPolicy") or "Ignore"),
    )
