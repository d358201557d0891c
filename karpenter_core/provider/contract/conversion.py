"""Defines a plug-in's conversions of older documents (`karpenter convert`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Conversion", "ManifestDraft"]


class ManifestDraft(Protocol):
    """A document that is being converted: its fields, and the manifests that are made of them.

    A field is named by its path, such as `spec.subnetSelector` or `spec.taints.0.key`. Each field of the
    document must be moved, kept or left out with a reason: those that are not are reported as lost.
    Comments follow their fields.
    """

    @property
    def source(self) -> Mapping[str, object]:
        """The document as it was read. Must not be changed."""
        ...

    @property
    def documents(self) -> Sequence[Mapping[str, object]]:
        """All documents of the input, this one included."""
        ...

    def get(self, path: str) -> object:
        """Return a field of the document as it was read; None if there is none."""
        ...

    def become(self, *, api_version: str, kind: str) -> None:
        """Give the manifest another version and kind, and keep its metadata.

        Leaves out what only the API server writes. Call it before other fields are moved.
        """
        ...

    def keep(self, path: str) -> None:
        """Keep a field where it is, without the parts that were moved or left out before."""
        ...

    def move(
        self,
        path: str,
        to: str,
        *,
        value: object = ...,
        reason: str = "",
        into: ManifestDraft | None = None,
    ) -> None:
        """Move a field, with another `value` if one is given, to a path of this or of another manifest.

        `reason` says why the value changes. A field that is not there is ignored.
        """
        ...

    def use(self, path: str, reason: str) -> None:
        """Report a field whose meaning is in fields that are added. A field that is not there is ignored."""
        ...

    def leave_out(self, path: str, reason: str) -> None:
        """Leave a field out. A field that is not there is ignored."""
        ...

    def add(self, to: str, value: object, reason: str) -> None:
        """Add a field that the document does not have, for example a default that changed."""
        ...

    def extend(self, to: str, values: Sequence[object], reason: str) -> None:
        """Append values to a list of the new manifest, for example defaults that are gone."""
        ...

    def hand_over(
        self, path: str, *, group: str, kind: str, name_at: str, to: str, reason: str = ""
    ) -> None:
        """Move a field to the NodeClass that the new manifest names at the path `name_at`.

        If two manifests hand over different values, the second one gets a copy of the NodeClass.
        """
        ...

    def warn(self, message: str) -> None:
        """Report something that the user has to check or to do, in one sentence."""
        ...

    def new_manifest(self, *, api_version: str, kind: str, name: str) -> ManifestDraft:
        """Begin another manifest, which is written after the one of this document."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A conversion of one kind of document.

    All conversions that accept a document convert it, those of the core first.
    """

    kind: str
    """Name of what is converted, with its version: `AWSNodeTemplate (karpenter.k8s.aws/v1alpha1)`."""
    accepts: Callable[[Mapping[str, object]], bool]
    """Tell whether this is such a document; gets anything that YAML or JSON can hold in an object."""
    convert: Callable[[ManifestDraft], None]
    """Convert a document. Raise BadInputError for one that cannot be converted."""
    successors: Mapping[str, tuple[str, str]]
    """Groups and kinds of today's NodeClasses by the older kinds that they replace."""
