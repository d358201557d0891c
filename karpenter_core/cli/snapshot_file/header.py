"""The header of a snapshot: settings, labels, catalogues, controllers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Final, cast

import msgspec

from karpenter_core.cli.manifests import SNAPSHOT_KEY
from karpenter_core.errors import BadInputError, SettingsError

if TYPE_CHECKING:
    from karpenter_core.api.commitments import Commitment
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.operator.option_values import Value
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.contract import LabelClasses

__all__ = [
    "ClassCatalogue", "SnapshotHeader", "labels_from_json", "labels_to_json",
    "read_header", "settings_from_json", "settings_to_json", "write_header",
]  # fmt: skip

_VERSION: Final = 1

_PLAIN_SETTINGS: Final = (
    "currency", "exchange_rates", "ignore_dra_requests", "min_values_policy", "node_fee", "packing",
    "pause_disruption", "preference_policy", "priority_cutoff", "provisioning_requests",
    "capacity_quotas", "vpa_predictions",
)  # fmt: skip
"""Settings that plans depend on, by field."""
_LATER_SETTINGS: Final = ("max_nodes_total", "launches_per_minute")
"""Such settings that snapshots of earlier versions do not have."""
_GATES: Final = (
    "capacity_buffer", "node_overlay", "reserved_capacity", "spot_to_spot_consolidation",
    "static_capacity",
)  # fmt: skip


class ClassCatalogue(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The catalogue of one NodeClass, by the key of `SnapshotHeader.catalogues`; or why there is none."""

    group: str
    kind: str
    name: str
    catalogue: str = ""
    problem: str = ""
    provider: str = ""


class _CommitmentNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a commitment, and what they may be."""

    amount: Annotated[int, msgspec.Meta(ge=0)]
    price: Annotated[float, msgspec.Meta(ge=0)] | None
    discount: Annotated[float, msgspec.Meta(ge=0, lt=1)]


class SnapshotHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The contents of a snapshot beside the objects; values as JSON has them."""

    taken_at: datetime
    program: str
    settings: dict[str, object]
    labels: dict[str, object]
    max_instance_types: Annotated[int, msgspec.Meta(ge=1)]
    is_hashed: bool = False
    classes: tuple[ClassCatalogue, ...] = ()
    catalogues: dict[str, list[object]] = {}
    controllers: tuple[dict[str, object], ...] = ()
    """Deployments and DaemonSets of other controllers that act on nodes, with images alone."""
    notes: tuple[str, ...] = ()
    version: int = _VERSION


def write_header(header: SnapshotHeader) -> dict[str, object]:
    """Return the header as JSON values."""
    return cast("dict[str, object]", msgspec.to_builtins(header))


def read_header(value: object, where: str) -> SnapshotHeader:
    """Read the header of a snapshot.

    Raises:
        BadInputError: it is of another version, or a field is missing or of another type.
    """
    version = cast("JsonObject", value).get("version") if isinstance(value, dict) else None
    if version != _VERSION:
        raise BadInputError(
            f'{where}: field "{SNAPSHOT_KEY}.version": must be {_VERSION}, not {version!r}'
        )
    try:
        header = msgspec.convert(value, SnapshotHeader)
    except msgspec.ValidationError as error:
        raise BadInputError(f'{where}: field "{SNAPSHOT_KEY}": {error}') from error
    if header.taken_at.tzinfo is None:
        raise BadInputError(
            f'{where}: field "{SNAPSHOT_KEY}.takenAt": must have a time zone, '
            f"not {header.taken_at.isoformat()}"
        )
    return header


def settings_to_json(settings: Settings) -> dict[str, object]:
    """Return the settings that plans depend on."""
    gates = settings.feature_gates
    return {
        **{name: getattr(settings, name) for name in (*_PLAIN_SETTINGS, *_LATER_SETTINGS)},
        "feature_gates": {name: getattr(gates, name) for name in _GATES},
        "scheduler_config": cast("object", msgspec.to_builtins(settings.scheduler_config)),
        "commitments": [_commitment_to_json(each) for each in settings.commitments],
    }


def settings_from_json(values: dict[str, object], where: str) -> Settings:
    """Return default settings with those of a snapshot.

    Raises:
        BadInputError: a value is missing, or is none that the setting may have.
    """
    from karpenter_core.api.records import TopologySpread
    from karpenter_core.operator.settings import Settings

    defaults = Settings(cluster_name="snapshot")
    try:
        plain: dict[str, object] = {
            name: _setting(name, values[name], default=getattr(defaults, name))
            for name in (*_PLAIN_SETTINGS, *(each for each in _LATER_SETTINGS if each in values))
        }
        gates = msgspec.convert(values["feature_gates"], dict[str, bool])
        return replace(
            defaults,
            **plain,  # pyright: ignore[reportArgumentType] - of the types of the defaults
            feature_gates=replace(defaults.feature_gates, **{name: gates[name] for name in _GATES}),
            scheduler_config=msgspec.convert(
                values["scheduler_config"], tuple[TopologySpread, ...]
            ),
            commitments=tuple(
                _commitment_from_json(each)
                for each in msgspec.convert(values["commitments"], list[dict[str, object]])
            ),
        )
    except KeyError as error:
        raise BadInputError(
            f'{where}: field "{SNAPSHOT_KEY}.settings": "{error.args[0]}" is missing'
        ) from error
    except (msgspec.ValidationError, SettingsError, TypeError, ValueError) as error:
        raise BadInputError(f'{where}: field "{SNAPSHOT_KEY}.settings": {error}') from error


def _setting(name: str, value: object, *, default: Value | dict[str, float]) -> object:
    """Return the value of a setting after the checks of its option.

    Raises:
        SettingsError: the option does not allow the value.
    """
    from karpenter_core.operator.option_shapes import shape_value
    from karpenter_core.operator.option_values import OptionText, read_option, value_text
    from karpenter_core.operator.options import OPTIONS

    if isinstance(default, dict):
        rates = msgspec.convert(value, dict[str, float])
        text = ",".join(f"{currency}={rate}" for currency, rate in rates.items())
    else:
        text = value_text(msgspec.convert(value, type(default)))
    (option,) = (each for each in OPTIONS if each.field == name)
    given = OptionText(text, name, by_flag=True)
    warnings: list[str] = []
    read = read_option(option, given, warnings.append, default="")
    return shape_value(option, option.default if read is None else read, given, warnings)


def _commitment_to_json(commitment: Commitment) -> dict[str, object]:
    return {
        "name": commitment.name,
        "requirements": [
            {"key": each.key, "operator": each.operator, "values": list(each.values)}
            for each in commitment.requirements
        ],
        "resource": commitment.resource,
        "amount": commitment.amount,
        "price": commitment.price,
        "discount": commitment.discount,
        "currency": commitment.currency,
    }


def _commitment_from_json(values: dict[str, object]) -> Commitment:
    from karpenter_core.api.commitments import Commitment
    from karpenter_core.api.nodeclaim import RequirementSpec

    numbers = msgspec.convert(values, _CommitmentNumbers)
    for name in ("amount", "price", "discount"):
        number = getattr(numbers, name)
        if number is not None and not isfinite(number):
            raise ValueError(f"{name} of a commitment must be finite, not {number}")
    requirements = msgspec.convert(values["requirements"], list[dict[str, object]])
    given = {**values, "requirements": tuple(map(RequirementSpec.model_validate, requirements))}
    return Commitment(**given)  # pyright: ignore[reportArgumentType] - written by `_commitment_to_json`


def labels_to_json(labels: LabelClasses) -> dict[str, object]:
    """Return the labels of providers as JSON values."""
    return cast("dict[str, object]", msgspec.to_builtins(labels, order="deterministic"))


def labels_from_json(values: dict[str, object], where: str) -> LabelClasses:
    """Read the labels of providers.

    Raises:
        BadInputError: a field is of another type.
    """
    from karpenter_core.provider.contract import LabelClasses

    sets = {"well_known", "restricted_domains", "settable", "unsupported_topology_keys",
            "unsupported_provisioners"}  # fmt: skip
    types: dict[str, object] = {
        **dict.fromkeys(sets, frozenset[str]),
        "aliases": dict[str, str],
        "value_aliases": dict[str, dict[str, str]],
        "known_values": dict[str, frozenset[str]],
    }
    try:
        return LabelClasses(
            **{name: msgspec.convert(values[name], types[name]) for name in types if name in values}  # pyright: ignore[reportArgumentType] - of the types of the fields
        )
    except msgspec.ValidationError as error:
        raise BadInputError(f'{where}: field "{SNAPSHOT_KEY}.labels": {error}') from error
