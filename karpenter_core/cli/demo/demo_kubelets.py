"""Registers the simulated cloud's instances as Nodes, with conditions."""

from __future__ import annotations

import asyncio
import contextlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, cast

import msgspec

from karpenter_core.errors import ApiError, ConflictError, NotFoundError, SettingsError
from karpenter_core.provider.markers import PROJECT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_core.kube.api import KubeApi
    from karpenter_core.provider.kit.demo_cloud import DemoCloud

__all__ = ["GROUP", "SELF_SIMULATED", "DemoKubelets", "find_simulated_cloud"]

GROUP: Final = "karpenter.simulations"
SELF_SIMULATED: Final = "kwok"
"""The provider with simulated nodes, which needs no simulated cloud."""

_POLL_SECONDS: Final = 0.25
_KWOK_NODE: Final = "kwok.x-k8s.io/node"
"""Annotation of simulated nodes: the cluster makes those with the value `fake` Ready."""


def find_simulated_cloud(provider: str) -> AbstractContextManager[DemoCloud]:
    """Return the simulated cloud of a provider as a context manager.

    Raises:
        SettingsError: the provider has no simulated cloud, or its dependencies are missing.
    """
    points_by_name = {point.name: point for point in entry_points(group=GROUP)}
    if provider not in points_by_name:
        names = ", ".join(sorted({SELF_SIMULATED, *points_by_name}))
        if entry_points(group=PROJECT, name=provider):
            raise SettingsError(
                f"--provider {provider}: its simulated cloud is not installed; install "
                f"the distribution that has it, or choose one of: {names}"
            )
        raise SettingsError(
            f"--provider {provider}: there is no simulated cloud of that name; there are: {names}"
        )
    try:
        return points_by_name[provider].load()()
    except ImportError as error:
        raise SettingsError(
            f"--provider {provider}: a package that the simulated cloud needs is missing ({error}); "
            "install its distribution again, with its requirements"
        ) from error


class DemoKubelets:
    """Registers instances as Nodes, and deletes Nodes whose instance is gone.

    In a real cluster kubelets do the first, and the cloud controller manager does the second.
    """

    def __init__(self, cloud: DemoCloud, api: KubeApi) -> None:
        self._cloud: Final = cloud
        self._api: Final = api
        self._names: Final[dict[str, str]] = {}
        """Names of the registered Nodes, by provider ID."""
        self._conditions: Final[dict[str, Sequence[JsonMapping]]] = {}
        """Conditions that clouds have given to registered Nodes, by provider ID."""

    async def run(self) -> None:
        """Follow the state of the cloud until cancelled."""
        while True:
            # A cluster that does not answer for a moment is asked again.
            with contextlib.suppress(ApiError):
                await self._follow()
            await asyncio.sleep(_POLL_SECONDS)

    async def _follow(self) -> None:
        booted = await asyncio.to_thread(self._cloud.nodes)
        for provider_id, manifest in booted.items():
            if provider_id not in self._names:
                await self._register(provider_id, manifest)
            elif _conditions_of(manifest) != self._conditions[provider_id]:
                await self._set_conditions(provider_id, _conditions_of(manifest))
        living = await asyncio.to_thread(self._cloud.instances)
        for provider_id in self._names.keys() - living.keys():
            await self._remove(provider_id)

    async def _register(self, provider_id: str, manifest: Mapping[str, object]) -> None:
        from karpenter_core.kube.resources import NODES

        metadata = cast("JsonMapping", manifest["metadata"])
        kubelet = "none" if _is_never_ready(manifest) else "fake"
        annotations = {**metadata.get("annotations", {}), _KWOK_NODE: kubelet}
        node = {**manifest, "metadata": {**metadata, "annotations": annotations}}
        try:
            await self._api.create(NODES, node)
        except ConflictError:
            return  # the previous Node of that name is still being removed
        self._names[provider_id] = metadata["name"]
        self._conditions[provider_id] = _conditions_of(manifest)

    async def _set_conditions(self, provider_id: str, conditions: Sequence[JsonMapping]) -> None:
        """Set conditions that came later, as agents on a node do; the others stay."""
        from karpenter_core.kube.resources import NODES

        name, types = self._names[provider_id], {each["type"] for each in conditions}
        node: JsonMapping = msgspec.json.decode(await self._api.get(NODES, name))
        kept = [
            each
            for each in node.get("status", {}).get("conditions", ())
            if each["type"] not in types
        ]
        await self._api.patch(
            NODES,
            name,
            {"status": {"conditions": [*kept, *conditions]}},
            subresource="status",
            resource_version=node["metadata"]["resourceVersion"],
        )
        self._conditions[provider_id] = conditions

    async def _remove(self, provider_id: str) -> None:
        from karpenter_core.kube.resources import NODES

        with contextlib.suppress(NotFoundError):
            await self._api.delete(NODES, self._names[provider_id])
        del self._names[provider_id]
        del self._conditions[provider_id]


def _conditions_of(manifest: Mapping[str, object]) -> Sequence[JsonMapping]:
    return cast("JsonMapping", manifest.get("status", {})).get("conditions", ())


def _is_never_ready(manifest: Mapping[str, object]) -> bool:
    return any(
        (each["type"], each["status"]) == ("Ready", "False") for each in _conditions_of(manifest)
    )
