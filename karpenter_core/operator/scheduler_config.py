"""Reads `--scheduler-config`: default topology spread constraints.

The same constraints that an administrator gives the kube-scheduler's PodTopologySpread plug-in.
A mistake stops the start: a default that is silently dropped would place pods differently from
the scheduler that binds them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from karpenter_core.api.records import TopologySpread

__all__ = ["checked_mapping", "parse_scheduler_config", "read_document"]

_SOURCE: Final = "scheduler-config"
_WHEN: Final = ("DoNotSchedule", "ScheduleAnyway")
_NODE_POLICIES: Final = ("Honor", "Ignore")
_MERGE: Final = "tag:yaml.org,2002:merge"
_FIELDS: Final = frozenset(
    {"maxSkew", "topologyKey", "whenUnsatisfiable", "minDomains", "nodeAffinityPolicy",
     "nodeTaintsPolicy", "labelSelector", "matchLabelKeys"},
)  # fmt: skip
_QUALIFIED_NAME: Final = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
)


def parse_scheduler_config(text: str) -> tuple[TopologySpread, ...]:
    """Read the option's YAML or JSON, as constraints without selectors; empty text means none.

    Raises:
        SettingsError: it cannot be read, names unknown fields, or breaks a rule.
    """
    if not text.strip():
        return ()
    document = read_document(text, _SOURCE)
    if document is None:
        return ()
    root = checked_mapping(document, _SOURCE, {"podTopologySpread"})
    spread = checked_mapping(
        root.get("podTopologySpread") or {},
        f"{_SOURCE}: podTopologySpread",
        {"defaultConstraints"},
    )
    raw: object = spread.get("defaultConstraints") or []
    if not isinstance(raw, list):
        raise SettingsError(f"{_SOURCE}: podTopologySpread.defaultConstraints must be a list")
    constraints = tuple(
        _constraint(item, index) for index, item in enumerate(cast("list[object]", raw))
    )
    seen: set[tuple[str, str]] = set()
    for item in constraints:
        pair = (item.topology_key, item.when_unsatisfiable)
        if pair in seen:
            raise SettingsError(f"{_SOURCE}: duplicate constraint for {pair[0]} with {pair[1]}")
        seen.add(pair)
    return constraints


def read_document(text: str, source: str) -> object:
    """Read YAML without duplicate keys.

    Raises:
        SettingsError: it cannot be read; names the `source`.
    """
    import yaml

    class StrictLoader(yaml.SafeLoader):
        """Refuses duplicate keys, which YAML readers treat differently."""

        def construct_mapping(
            self,
            node: yaml.MappingNode,
            deep: bool = False,  # noqa: FBT001, FBT002 - the library's signature
        ) -> dict[object, object]:
            keys = [
                key.value
                for key, _ in node.value
                if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE
            ]
            if len(set(keys)) != len(keys):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key is duplicated", node.start_mark
                )
            return super().construct_mapping(node, deep=deep)

    try:
        return yaml.load(text, Loader=StrictLoader)  # noqa: S506 - a safe loader
    except RecursionError as error:
        raise SettingsError(f"{source}: cannot be read as YAML: is nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number of thousands of digits
        message = f"{source}: cannot be read as YAML: {' '.join(str(error).split())}"
        raise SettingsError(message) from error


def checked_mapping(
    value: object, where: str, allowed: set[str] | frozenset[str]
) -> dict[str, object]:
    """Return a value that is a mapping of known fields.

    Raises:
        SettingsError: it is not.
    """
    if not isinstance(value, dict):
        raise SettingsError(f"{where}: must be a mapping")
    mapping = cast("dict[str, object]", value)
    for key in mapping:
        if key not in allowed:
            raise SettingsError(f'{where}: unknown field "{key}"')
    return mapping


def _constraint(value: object, index: int) -> TopologySpread:
    from karpenter_core.api.records import TopologySpread

    where = f"{_SOURCE}: defaultConstraints[{index}]"
    item = checked_mapping(value, where, _FIELDS)
    if item.get("labelSelector") is not None or item.get("matchLabelKeys"):
        refused = "matchLabelKeys" if item.get("labelSelector") is None else "labelSelector"
        raise SettingsError(f"{where}: {refused} may not be set on a default constraint")
    skew = _positive(item.get("maxSkew"))
    if skew is None:
        raise SettingsError(f"{where}: maxSkew must be above zero, not {item.get('maxSkew')!r}")
    key = item.get("topologyKey")
    if not isinstance(key, str) or not _QUALIFIED_NAME.fullmatch(key):
        raise SettingsError(f"{where}: topologyKey must be a label key, not {key!r}")
    domains = _positive(item.get("minDomains"))
    if domains is None and item.get("minDomains") is not None:
        min_domains = item.get("minDomains")
        raise SettingsError(f"{where}: minDomains must be above zero, not {min_domains!r}")
    return TopologySpread(
        topology_key=key,
        max_skew=skew,
        when_unsatisfiable=_choice(item, "whenUnsatisfiable", _WHEN, where),
        min_domains=domains,
        node_affinity_policy=_choice(item, "nodeAffinityPolicy", _NODE_POLICIES, where, "Honor"),
        node_taints_policy=_choice(item, "nodeTaintsPolicy", _NODE_POLICIES, where, "Ignore"),
    )


def _positive(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if value > 0 else None


def _choice(
    item: dict[str, object], name: str, choices: tuple[str, ...], where: str, default: str = ""
) -> str:
    value = item.get(name)
    if value is None and default:
        return default
    if not isinstance(value, str) or value not in choices:
        raise SettingsError(f"{where}: {name} must be one of {', '.join(choices)}, not {value!r}")
    return value
