"""Reads the objects and the catalogues of a snapshot file.

No provider is started, so that a snapshot of any cloud is read without its account.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, final

import msgspec

from karpenter_core.cli.cluster_input import LocatedObject
from karpenter_core.cli.snapshot_file.catalogue_document import instance_types_from
from karpenter_core.errors import BadInputError
from karpenter_core.kube.wire.codecs import Codecs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.cli.catalogues import LocatedPool
    from karpenter_core.cli.manifests import SnapshotFile
    from karpenter_core.cli.snapshot_file.header import SnapshotHeader
    from karpenter_core.scheduling.problem import Catalogue

__all__ = ["SnapshotCatalogues", "objects_of"]


def objects_of(file: SnapshotFile, codecs: Codecs) -> tuple[list[LocatedObject], list[str]]:
    """Return the objects of a snapshot, and notes about kinds that no loaded plug-in knows.

    Raises:
        BadInputError: an object cannot be read.
    """
    found: list[LocatedObject] = []
    unknown: dict[str, int] = {}
    for entry in file.entries:
        codec = codecs.find(entry.group, entry.kind)
        if codec is None:
            name = f"{entry.kind}.{entry.group}"
            unknown[name] = unknown.get(name, 0) + 1
            continue
        try:
            decoded = codec.decode(msgspec.json.encode(entry.manifest))
        except BadInputError as error:
            raise BadInputError(f"{entry.where}: {error}") from error
        found.append(LocatedObject(entry.where, decoded))
    return found, [f"ignored: {count} of kind {name}" for name, count in sorted(unknown.items())]


@final
class SnapshotCatalogues:
    """The catalogues of a snapshot, by the NodeClass of each NodePool.

    A NodeClass that the snapshot does not know has no instance types: they stay unknown.
    """

    def __init__(self, header: SnapshotHeader, where: str) -> None:
        self._header: Final = header
        self._where: Final = where

    @cached_property
    def _catalogues(self) -> dict[str, Catalogue]:
        """The catalogues of the file, by version."""
        from karpenter_core.scheduling.problem import Catalogue

        return {
            key: Catalogue(
                version=key,
                instance_types=instance_types_from(types, f"{self._where}: catalogue {key}"),
            )
            for key, types in self._header.catalogues.items()
        }

    def owners(self, pools: Iterable[NodePool]) -> dict[tuple[str, str], str]:
        """Return the provider of each NodeClass kind, by group and kind."""
        refs = {
            (ref.group, ref.kind)
            for ref in (pool.spec.template.spec.node_class_ref for pool in pools)
        }
        known = {
            (each.group, each.kind): each.provider for each in self._header.classes if each.provider
        }
        return {key: known[key] for key in refs if key in known}

    async def catalogues(
        self,
        pools: Sequence[LocatedPool],
        node_classes: Iterable[NodeClass],  # noqa: ARG002 - their types are listed already
        *,
        is_lenient: bool,  # noqa: ARG002 - a class without types is no error of the file
    ) -> tuple[dict[str, Catalogue], dict[str, str]]:
        """Return the catalogue of each NodePool by name, and the reasons of those without one.

        Raises:
            BadInputError: a catalogue of the file cannot be read.
        """
        read = self._catalogues
        by_class = {(each.group, each.kind, each.name): each for each in self._header.classes}
        found: dict[str, Catalogue] = {}
        problems: dict[str, str] = {}
        for _, pool in pools:
            ref = pool.spec.template.spec.node_class_ref
            entry = by_class.get((ref.group, ref.kind, ref.name))
            if entry is not None and entry.catalogue in read:
                found[pool.name] = read[entry.catalogue]
            else:
                unknown = f"the snapshot has no instance types of {ref.kind} {ref.name}"
                problems[pool.name] = unknown if entry is None else entry.problem or unknown
        return found, problems
