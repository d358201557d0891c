"""Converts texts of options to gates, lists, rates, names and rules."""

from __future__ import annotations

import difflib
import re
from ipaddress import ip_address
from math import isfinite
from typing import TYPE_CHECKING, Final

from karpenter_core.api.names import parse_label_query, parse_labels
from karpenter_core.errors import BadInputError, SettingsError
from karpenter_core.lifecycle.node.health_rules import parse_health_rules
from karpenter_core.lifecycle.node.repair import UnhealthyLimit
from karpenter_core.operator.commitments_setting import parse_commitments
from karpenter_core.operator.option_values import FALSE_TEXTS, TRUE_TEXTS
from karpenter_core.operator.scheduler_config import parse_scheduler_config
from karpenter_core.provider.contract import FeatureGates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from karpenter_core.operator.option_values import OptionText, ProcessOption, Value

__all__ = [
    "DEFAULT_CPU_REQUESTS",
    "DEFAULT_GATES",
    "comma_separated",
    "gate_warnings",
    "parse_feature_gates",
    "shape_value",
]

DEFAULT_CPU_REQUESTS: Final = 1000  # upstream default, in milli-cores
_CURRENCY: Final = re.compile(r"[A-Z]{3}")  # ISO 4217
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OBJECT_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_HOST_NAME: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
    r"(\.[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*"
)

_GATE_FIELDS: Final = {
    "NodeRepair": "node_repair",
    "ReservedCapacity": "reserved_capacity",
    "SpotToSpotConsolidation": "spot_to_spot_consolidation",
    "NodeOverlay": "node_overlay",
    "StaticCapacity": "static_capacity",
    "CapacityBuffer": "capacity_buffer",
}
DEFAULT_GATES: Final = ",".join(
    f"{gate}={str(getattr(FeatureGates(), name)).lower()}" for gate, name in _GATE_FIELDS.items()
)


def shape_value(
    option: ProcessOption, value: Value, option_text: OptionText | None, warnings: list[str]
) -> object:
    """Turn the text of an option into what it stands for.

    Raises:
        SettingsError: the text does not have the form that the option needs.
    """
    source = option.flag if option_text is None else option_text.source
    match option.flag:
        case "feature-gates":
            warnings += [f"{source}: {each}" for each in gate_warnings(str(value))]
            return parse_feature_gates(str(value))
        case "scheduler-config":
            return parse_scheduler_config(str(value))
        case "commitments":
            return parse_commitments(str(value))
        case "cpu-requests" if isinstance(value, int) and value <= 0:
            warnings.append(f"{source}: {value} is not above zero; {DEFAULT_CPU_REQUESTS} is used")
            return DEFAULT_CPU_REQUESTS
        case "log-level":
            return value or "info"
        case flag if flag in _CONVERTERS:
            try:
                return _CONVERTERS[flag](str(value))
            except BadInputError as error:
                raise SettingsError(f"{source}: {error}") from error
        case _:
            return value


def comma_separated(text: str) -> tuple[str, ...]:
    """Read a comma separated list."""
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)


def _parse_rates(text: str) -> dict[str, float]:
    rates: dict[str, float] = {}
    for part in comma_separated(text):
        currency, _, rate = (piece.strip() for piece in part.partition("="))
        try:
            amount = float(rate)
        except ValueError:
            amount = 0.0
        if not _CURRENCY.fullmatch(currency) or not isfinite(amount) or amount <= 0:
            raise BadInputError(f'"{part}" is not CURRENCY=NUMBER above zero, as CNY=0.14 is')
        if currency in rates:
            raise BadInputError(f'"{currency}" has two rates')
        rates[currency] = amount
    return rates


def _parse_currency(text: str) -> str:
    if not _CURRENCY.fullmatch(text):
        raise BadInputError(
            f'must be the three capital letters of a currency, such as USD, not "{text}"'
        )
    return text


def _parse_address(text: str) -> str:
    try:
        ip_address(text or "::")
    except ValueError as error:
        if not _HOST_NAME.fullmatch(text):
            raise BadInputError(f'must be an IP address or a host name, not "{text}"') from error
    return text


def _parse_object_name(text: str) -> str:
    if not _OBJECT_NAME.fullmatch(text):
        raise BadInputError(f'must be a name of a Kubernetes object, not "{text}"')
    return text


def _parse_namespace(text: str) -> str:
    if text and not _NAMESPACE.fullmatch(text):
        raise BadInputError(f'must be the name of a namespace, not "{text}"')
    return text


_CONVERTERS: Final[Mapping[str, Callable[[str], object]]] = {
    "providers": comma_separated,
    "log-output-paths": comma_separated,
    "log-error-output-paths": comma_separated,
    "bind-address": _parse_address,
    "dashboard-bind-address": _parse_address,
    "health-probe-bind-address": _parse_address,
    "metrics-bind-address": _parse_address,
    "currency": _parse_currency,
    "exchange-rates": _parse_rates,
    "leader-election-name": _parse_object_name,
    "leader-election-namespace": _parse_namespace,
    "repair-unhealthy-limit": UnhealthyLimit.parse,
    "repair-conditions": parse_health_rules,
    "leader-election-labels": parse_labels,
    "observe-nodes": parse_label_query,
}
"""The readers of texts that stand for other values, by flag."""


def parse_feature_gates(text: str) -> FeatureGates:
    """Read `A=true,B=false`; unknown gates change nothing, missing ones keep their default.

    Raises:
        SettingsError: a value is neither true nor false.
    """
    chosen: dict[str, bool] = {}
    for name, value in _gates_of(text):
        if name not in _GATE_FIELDS:
            continue
        if value not in TRUE_TEXTS | FALSE_TEXTS:
            message = f'--feature-gates: {name} must be true or false, not "{value}"'
            raise SettingsError(message)
        chosen[_GATE_FIELDS[name]] = value in TRUE_TEXTS
    return FeatureGates(**chosen)


def gate_warnings(text: str) -> tuple[str, ...]:
    """Return what of `A=true,B=false` changes nothing: unknown names."""
    warnings: list[str] = []
    for name, _ in _gates_of(text):
        if name not in _GATE_FIELDS:
            near = difflib.get_close_matches(name, _GATE_FIELDS, n=1)
            hint = f"did you mean {near[0]}?" if near else "it has no effect"
            warnings.append(f'there is no gate "{name}"; {hint}')
    return tuple(warnings)


def _gates_of(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if name or separator:
            yield name, value
