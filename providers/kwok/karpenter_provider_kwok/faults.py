"""Faults of the simulated cloud, and the file they are read from.

Faults are data: given in a JSON file that is read again whenever it changes (so that a test can
inject them into a running process), or put into the cloud by a program. Each is one object:

    {"fault": "stock-out", "zones": ["test-zone-a"], "capacityTypes": ["spot"], "count": 3}

`count` is how often it strikes; without one it stays until it is taken out of the file. Names in
`instanceTypes`, `zones`, `capacityTypes`, `nodeClaims` and `resources` are shell patterns; an empty
list matches everything. Durations are written as Go does (`2s`, `1m30s`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.durations import format_duration, parse_duration
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CloudOperation", "KwokFault", "KwokFaultKind", "load_faults"]


class KwokFaultKind(StrEnum):
    """Kinds of faults."""

    STOCK_OUT = "stock-out"
    """Matching offerings have no capacity."""
    THROTTLE = "throttle"
    """The operation is refused; nothing is done."""
    AUTH_FAILURE = "auth-failure"
    """The operation is refused for its credentials; nothing is done."""
    QUOTA = "quota"
    """The account may have no more instances of matching offerings' families."""
    SLOW_CALL = "slow-call"
    """The operation begins only after `delay`."""
    SLOW_REPLY = "slow-reply"
    """The operation is done at once; its reply takes `delay`."""
    LOST_REPLY = "lost-reply"
    """The operation is done; its reply never comes, and the connection breaks."""
    TOKEN_IN_PROGRESS = "token-in-progress"  # noqa: S105 - the name of a fault
    """A launch with a token that was used before is refused: its first request is still at work."""
    SLOW_NODE = "slow-node"
    """The Node of a matching instance that is launched now appears later by `delay`."""
    LATE_FAILURE = "late-failure"
    """A matching instance that is launched now fails after `delay`, for lack of capacity; no Node
    appears, and the failed instance stays until it is terminated."""
    PRICE = "price"
    """Matching offerings cost `percent` of what the catalogue says, from the next listing on."""
    FAILED_NODE = "failed-node"
    """The Node of a matching instance cannot be created this time."""
    RECLAIM = "reclaim"
    """A matching running instance is announced to be taken away, after `notice`."""
    PARTIAL_LISTING = "partial-listing"
    """Matching instances are missing from the listing, which says that it is not complete."""
    LAGGING_LISTING = "lagging-listing"
    """The listing shows the instances of `delay` ago, and says so."""
    PROTECTED = "protected"
    """Matching instances may not be terminated; the others of the batch are."""
    UNREADY_NODE = "unready-node"
    """The Node of a matching instance registers, and its kubelet never reports it Ready."""
    MISSING_RESOURCE = "missing-resource"
    """The Node of a matching instance never shows the matching resources."""


class CloudOperation(StrEnum):
    """Operations of the cloud."""

    LAUNCH = "launch"
    TERMINATE = "terminate"
    FETCH = "fetch"
    LIST = "list"


@dataclass(frozen=True, slots=True, kw_only=True)
class KwokFault:
    """One thing that goes wrong, for whom, and how often."""

    kind: KwokFaultKind
    operation: CloudOperation = CloudOperation.LAUNCH
    instance_types: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    capacity_types: tuple[str, ...] = ()
    node_claims: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    delay: timedelta = timedelta()
    retry_after: timedelta = timedelta(seconds=1)
    notice: timedelta = timedelta(minutes=2)
    count: int | None = None
    percent: int = 100

    def matches_offering(self, instance_type: str, zone: str, capacity_type: str) -> bool:
        """Whether the fault strikes this offering."""
        return (
            _matches(self.instance_types, instance_type)
            and _matches(self.zones, zone)
            and _matches(self.capacity_types, capacity_type)
        )

    def matches_claim(self, node_claim: str) -> bool:
        """Whether the fault strikes this claim's instance."""
        return _matches(self.node_claims, node_claim)

    def matches_resource(self, resource: str) -> bool:
        """Whether the fault strikes this resource."""
        return _matches(self.resources, resource)

    def to_json(self) -> str:
        """Write the fault as an object of a faults file."""
        lists = {
            "instanceTypes": list(self.instance_types),
            "zones": list(self.zones),
            "capacityTypes": list(self.capacity_types),
            "nodeClaims": list(self.node_claims),
            "resources": list(self.resources),
        }
        return json.dumps(
            {
                "fault": self.kind.value,
                "operation": self.operation.value,
                **{name: patterns for name, patterns in lists.items() if patterns},
                "delay": format_duration(self.delay),
                "retryAfter": format_duration(self.retry_after),
                "notice": format_duration(self.notice),
                **({} if self.count is None else {"count": self.count}),
                **({} if self.percent == 100 else {"percent": self.percent}),  # noqa: PLR2004
            }
        )


_FIELDS: Final = {
    "fault", "operation", "instanceTypes", "zones", "capacityTypes", "nodeClaims", "resources",
    "delay", "retryAfter", "notice", "count", "percent",
}  # fmt: skip


def load_faults(text: str, *, file: str) -> tuple[KwokFault, ...]:
    """Read the text of a faults file.

    Raises:
        BadInputError: it cannot be used; names file, entry, field and value.
    """
    try:
        document: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInputError(
            f"faults file {file} is not JSON: {error.msg} at line {error.lineno}"
        ) from error
    except (ValueError, RecursionError) as error:  # ValueError: a number of thousands of digits
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise BadInputError(f"faults file {file} is not JSON: {problem}") from error
    if not isinstance(document, list):
        raise BadInputError(f"faults file {file}: must be a list of faults")
    entries = cast("list[object]", document)
    return tuple(
        _fault(entry, f"faults file {file}: entry {index}") for index, entry in enumerate(entries)
    )


def _fault(entry: object, where: str) -> KwokFault:
    if not isinstance(entry, dict):
        raise BadInputError(f"{where}: must be an object, not {json.dumps(entry)}")
    fields = cast("dict[str, object]", entry)
    unknown = sorted(fields.keys() - _FIELDS)
    if unknown:
        raise BadInputError(f'{where}: unknown field "{unknown[0]}"')
    return KwokFault(
        kind=KwokFaultKind(_choice(fields, "fault", "", KwokFaultKind, where)),
        operation=CloudOperation(_choice(fields, "operation", "launch", CloudOperation, where)),
        instance_types=_patterns(fields, "instanceTypes", where),
        zones=_patterns(fields, "zones", where),
        capacity_types=_patterns(fields, "capacityTypes", where),
        node_claims=_patterns(fields, "nodeClaims", where),
        resources=_patterns(fields, "resources", where),
        delay=_duration(fields, "delay", "0s", where),
        retry_after=_duration(fields, "retryAfter", "1s", where),
        notice=_duration(fields, "notice", "2m", where),
        count=_number(fields, "count", where),
        percent=_number(fields, "percent", where) or 100,
    )


def _number(fields: dict[str, object], name: str, where: str) -> int | None:
    value = fields.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise BadInputError(
            f"{where}: {name}: must be a number above zero, not {json.dumps(value)}"
        )
    return value


def _choice(
    fields: dict[str, object],
    name: str,
    default: str,
    choices: type[StrEnum],
    where: str,
) -> str:
    value = fields.get(name, default)
    values = [choice.value for choice in choices]
    if value not in values:
        raise BadInputError(
            f"{where}: {name}: must be one of {', '.join(values)}, not {json.dumps(value)}"
        )
    return str(value)


def _patterns(fields: dict[str, object], name: str, where: str) -> tuple[str, ...]:
    value = fields.get(name, [])
    items = cast("Sequence[object]", value) if isinstance(value, list) else None
    if items is None or not all(isinstance(item, str) for item in items):
        raise BadInputError(f"{where}: {name}: must be a list of texts, not {json.dumps(value)}")
    return tuple(str(item) for item in items)


def _duration(fields: dict[str, object], name: str, default: str, where: str) -> timedelta:
    value = fields.get(name, default)
    try:
        return parse_duration(str(value))
    except ValueError:
        raise BadInputError(
            f"{where}: {name}: must be a duration such as 2s, not {json.dumps(value)}"
        ) from None


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
