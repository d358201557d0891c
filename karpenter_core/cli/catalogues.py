"""Fetches the instance types of NodePools for commands that change nothing.

Providers get a NodeWriter and a fence that refuse every change.
"""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.errors import (
    BadInputError,
    CloudProviderError,
    FencedError,
    KarpenterError,
    SettingsError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClassRef
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeView
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.contract import ProviderContext
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.provider.host.manager import Plugins
    from karpenter_core.scheduling.problem import Catalogue

__all__ = [
    "INSTANCE_TYPES_FILE",
    "CatalogueSource",
    "LocatedPool",
    "max_instance_types",
    "open_providers",
]

INSTANCE_TYPES_FILE: Final = "--instance-types-file"

LocatedPool: TypeAlias = "tuple[str, NodePool]"
"""The place where a NodePool was read, for messages, and the NodePool."""


@asynccontextmanager
async def open_providers(
    plugins: Plugins,
    *,
    settings: Settings,
    instance_types_file: Path | None,
) -> AsyncGenerator[Providers]:
    """Start the providers with these settings; of the cluster they only know the name.

    A provider that cannot start is skipped (`Providers.left_out`), because others may be
    sufficient.
    """
    from prometheus_client import CollectorRegistry

    from karpenter_core.operator.clock import SystemClock
    from karpenter_core.provider.host.executor import InlineExecutor
    from karpenter_core.provider.host.facade import Providers

    if instance_types_file is not None:
        flag = INSTANCE_TYPES_FILE.lstrip("-")
        given = {**settings.plugins, flag: str(instance_types_file)}
        settings = replace(settings, plugins=given)
    providers = Providers(
        plugins,
        executor=InlineExecutor(),
        clock=SystemClock(),
        fence=_ReadOnlyCluster(),
        registry=CollectorRegistry(),
    )
    with tempfile.TemporaryDirectory(prefix="karpenter-") as folder:
        await providers.start(
            lambda name: _context(providers, name, Path(folder), settings), all_needed=False
        )
        try:
            yield providers
        finally:
            await providers.stop()


def max_instance_types(providers: Providers) -> int:
    """Return the maximum number of instance types of a claim."""
    return min((info.max_instance_types for info in providers.infos().values()), default=600)


def _context(providers: Providers, name: str, folder: Path, settings: Settings) -> ProviderContext:
    from prometheus_client import CollectorRegistry

    from karpenter_core.operator.clock import SystemClock
    from karpenter_core.provider.contract import ClusterFacts, ProviderContext

    specs = providers.setting_specs().get(name, ())
    return ProviderContext(
        settings=settings.of_plugin(specs),
        clock=SystemClock(),
        cache_folder=folder,
        metrics=CollectorRegistry(),
        cluster=ClusterFacts(name=settings.cluster_name),
        nodes=_ReadOnlyCluster(),
        read_nodes=_no_nodes,
        wake=lambda _name: None,
        feature_gates=settings.feature_gates,
        fence=_ReadOnlyCluster(),
        observing=settings.observe,
    )


def _no_nodes() -> Mapping[str, NodeView]:
    return {}


@final
class _ReadOnlyCluster:
    """A NodeWriter that refuses every change."""

    def check(self) -> None:
        raise FencedError("this command changes nothing")

    async def create(self, manifest: Mapping[str, object]) -> NodeView:
        raise KarpenterError(f"this command creates no Node ({sorted(manifest)})")

    async def patch(self, name: str, patch: Mapping[str, object]) -> NodeView:
        raise KarpenterError(f"this command changes no Node ({name}: {sorted(patch)})")

    async def patch_status(self, name: str, patch: Mapping[str, object]) -> NodeView:
        raise KarpenterError(f"this command changes no Node ({name}: {sorted(patch)})")

    async def delete(self, name: str) -> None:
        raise KarpenterError(f"this command deletes no Node ({name})")


@final
class CatalogueSource:
    """Lists the instance types of each NodePool, by the provider of its NodeClass.

    With an instance types file every NodePool uses the types of that file, whatever kind of
    NodeClass it refers to. A NodeClass that does not exist counts as one with default values.
    """

    def __init__(self, providers: Providers, *, with_file: bool) -> None:
        self._providers: Final = providers
        self._models: Final = providers.node_class_models()
        self._file_reader: Final = _reader_of_catalogues(providers) if with_file else ""

    def owners(self, pools: Iterable[NodePool]) -> dict[tuple[str, str], str]:
        """Return the provider of each NodeClass kind, by group and kind.

        With an instance types file, the provider that reads it serves kinds that no other provider
        serves.
        """
        owners = {
            (model.resource.group, model.resource.kind): name
            for name, info in self._providers.infos().items()
            for model in info.node_classes
        }
        if self._file_reader:
            for pool in pools:
                ref = pool.spec.template.spec.node_class_ref
                owners.setdefault((ref.group, ref.kind), self._file_reader)
        return owners

    async def catalogues(
        self,
        pools: Sequence[LocatedPool],
        node_classes: Iterable[NodeClass],
        *,
        is_lenient: bool,
    ) -> tuple[dict[str, Catalogue], dict[str, str]]:
        """Return the catalogue of each NodePool by name and, if lenient, the errors of others.

        Raises:
            BadInputError: a NodePool refers to an unknown NodeClass, or its provider cannot list its
                instance types.
        """
        from karpenter_core.controllers.catalogue.controller import catalogue_version
        from karpenter_core.scheduling.problem import Catalogue

        given_classes = {
            (
                node_class_found.resource.group,
                node_class_found.resource.kind,
                node_class_found.name,
            ): node_class_found
            for node_class_found in node_classes
        }
        listed: dict[tuple[str, str, str], Catalogue] = {}
        catalogues: dict[str, Catalogue] = {}
        problems: dict[str, str] = {}
        for where, pool in pools:
            ref = pool.spec.template.spec.node_class_ref
            key = (ref.group, ref.kind, ref.name)
            try:
                if key not in listed:
                    node_class = self._decoded_by_provider(where, pool, ref, given_classes.get(key))
                    types = await self._providers.list_instance_types(pool, node_class)
                    listed[key] = Catalogue(version=catalogue_version(types), instance_types=types)
                catalogues[pool.name] = listed[key]
            except BadInputError as error:
                if not is_lenient:
                    raise
                problems[pool.name] = str(error)
            except CloudProviderError as error:
                if not is_lenient:
                    raise _without_types(where, pool, error) from error
                problems[pool.name] = str(error)
        return catalogues, problems

    def _decoded_by_provider(
        self, where: str, pool: NodePool, ref: NodeClassRef, given_class: NodeClass | None
    ) -> NodeClass:
        """Return the NodeClass as a model of the provider that serves it."""
        field = f'{where}: NodePool "{pool.name}": spec.template.spec.nodeClassRef'
        if self._file_reader:
            own = self._providers.infos()[self._file_reader].node_classes
            is_own = given_class is not None and isinstance(given_class, tuple(own))
            return (
                given_class
                if is_own and given_class is not None
                else _placeholder_node_class(own[0], ref, field)
            )
        if given_class is not None:
            return given_class
        model = self._models.get((ref.group, ref.kind))
        if model is None:
            served = ", ".join(f"{kind}.{group}" for group, kind in sorted(self._models)) or "none"
            raise BadInputError(
                f"{field}: no loaded provider serves {ref.kind}.{ref.group} (served: {served}); "
                f"{INSTANCE_TYPES_FILE} gives such pools a catalogue"
            )
        return _placeholder_node_class(model, ref, field)


def _placeholder_node_class(model: type[NodeClass], ref: NodeClassRef, field: str) -> NodeClass:
    """Return a NodeClass of this name with default values."""
    resource = model.resource
    blank = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": ref.name, "uid": f"{resource.kind.lower()}/{ref.name}"},
        "spec": {},
    }
    try:
        return model.model_validate(blank)
    except ValueError as error:
        raise BadInputError(f'{field}: {ref.kind} "{ref.name}" is needed and not there') from error


def _without_types(where: str, pool: NodePool, error: CloudProviderError) -> BadInputError:
    """Return the error that says where files can get their instance types from."""
    return BadInputError(
        f'{where}: NodePool "{pool.name}": its instance types cannot be listed: {error}; without access '
        f"to the cloud use {INSTANCE_TYPES_FILE}, or a file of karpenter snapshot, which has them"
    )


def _reader_of_catalogues(providers: Providers) -> str:
    for name in providers.names:
        specs = providers.setting_specs().get(name, ())
        if any(spec.flag == INSTANCE_TYPES_FILE for spec in specs):
            return name
    raise SettingsError(f"{INSTANCE_TYPES_FILE}: no loaded provider reads such a file")
