"""Base classes of our kinds: naming, metadata, API group, CRD columns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer

from karpenter_core.api.notices import ObjectRef

__all__ = [
    "CustomResource",
    "KubernetesObject",
    "Model",
    "ObjectMeta",
    "OwnerReference",
    "PrinterColumn",
    "ServedVersion",
    "Timestamp",
]

_INITIALISMS: Final = {
    "id": "ID",
    "ids": "IDs",
    "ip": "IP",
    "uri": "URI",
    "ami": "AMI",
    "cidr": "CIDR",
}


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(_INITIALISMS.get(part, part.capitalize()) for part in tail)


def _rfc3339(value: datetime) -> str:
    # `strftime` would write the year 1, which is Go's zero time, without its zeros.
    return value.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def _with_utc_form(value: datetime) -> datetime:
    """Refuse what is beyond the years 1 to 9999 in UTC: it could be read, and not be written."""
    try:
        value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("the time is beyond the years 1 to 9999") from error
    return value


Timestamp = Annotated[
    datetime, AfterValidator(_with_utc_form), PlainSerializer(_rfc3339, when_used="json")
]
"""An instant, written the way Kubernetes does (seconds, `Z`)."""


class Model(BaseModel):
    """Base of API models: immutable, camelCase on the wire; unknown fields are dropped."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=_camel,
        populate_by_name=True,
        serialize_by_alias=True,
    )


class OwnerReference(Model):
    """A reference to the owner of an object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Model):
    """The part of Kubernetes' metadata that we read or write."""

    name: str = ""
    generate_name: str | None = None
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """A column of `kubectl get`; priority 1 shows with `-o wide` only."""

    name: str
    json_path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedVersion:
    """Another version under which the API server serves a kind, with the same fields."""

    name: str
    deprecation_warning: str = ""
    """Sent to clients that use this version; empty if it is not deprecated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomResource:
    """The place of one of our kinds in the API, and the head of its CRD."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ("karpenter",)
    scope: Literal["Cluster", "Namespaced"] = "Cluster"
    printer_columns: tuple[PrinterColumn, ...] = ()
    scale: tuple[str, str] | None = None
    """Paths of spec and status replicas, for the scale subresource."""
    served_versions: tuple[ServedVersion, ...] = ()
    """Versions besides `version`, which is the stored one."""

    @property
    def api_version(self) -> str:
        """`group/version` of the stored version."""
        return f"{self.group}/{self.version}"

    @property
    def api_versions(self) -> tuple[str, ...]:
        """`group/version` of all versions, the stored one first."""
        others = (f"{self.group}/{served.name}" for served in self.served_versions)
        return (self.api_version, *others)


class KubernetesObject(Model):
    """An object of one of our kinds; a subclass names its place with `resource`."""

    resource: ClassVar[CustomResource]

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        """The object's name."""
        return self.metadata.name

    @property
    def uid(self) -> str:
        """The object's UID."""
        return self.metadata.uid

    @property
    def is_deleting(self) -> bool:
        """Whether the object is being deleted (has a deletion timestamp)."""
        return self.metadata.deletion_timestamp is not None

    @property
    def ref(self) -> ObjectRef:
        """A reference to the object, for Events."""
        return ObjectRef(
            api_version=self.resource.api_version,
            kind=self.resource.kind,
            name=self.metadata.name,
            namespace=self.metadata.namespace or "",
            uid=self.metadata.uid,
        )
