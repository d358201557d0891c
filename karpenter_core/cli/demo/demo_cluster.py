"""Creates, changes and deletes the demo's objects in a cluster."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from karpenter_core.cli.demo.demo_manifests import DEPLOYMENT, NAME

if TYPE_CHECKING:
    from karpenter_core.api.base import KubernetesObject
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.demo.demo_manifests import DemoManifests
    from karpenter_core.cli.demo.view import DemoView
    from karpenter_core.kube.api import KubeApi
    from karpenter_core.kube.resources import ResourceKind

__all__ = ["DemoCluster"]

_START_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.1


class DemoCluster:
    """The demo's objects in a cluster."""

    def __init__(self, api: KubeApi, demo_manifests: DemoManifests, view: DemoView) -> None:
        self._api: Final = api
        self._demo_manifests: Final = demo_manifests
        self._view: Final = view
        self._created: Final[list[tuple[ResourceKind, JsonObject]]] = []
        self._installed: Final[list[type[KubernetesObject]]] = []

    async def set_up(self) -> None:
        """Install missing CRDs and create the demo's objects, the Deployment without replicas."""
        from karpenter_core.api.crd import core_models
        from karpenter_core.api.nodepool import NodePool
        from karpenter_core.kube.resources import DEPLOYMENTS, NAMESPACES, custom_kind

        models = (*core_models(), self._demo_manifests.node_class)
        for model in models:
            await self._install(model)
        await self._create(NAMESPACES, self._demo_manifests.namespace())
        await self._create(
            custom_kind(self._demo_manifests.node_class.resource),
            self._demo_manifests.node_class_manifest(),
        )
        await self._create(custom_kind(NodePool.resource), self._demo_manifests.node_pool())
        await self._create(DEPLOYMENTS, self._demo_manifests.deployment())

    async def scale(self, replicas: int) -> None:
        """Set the number of replicas."""
        from karpenter_core.kube.resources import DEPLOYMENTS

        scale = {"spec": {"replicas": replicas}}
        await self._api.patch(DEPLOYMENTS, DEPLOYMENT, scale, namespace=NAME)

    async def change_node_class(self, fields: dict[str, object]) -> None:
        """Replace fields of the NodeClass's spec."""
        from karpenter_core.kube.resources import custom_kind

        kind = custom_kind(self._demo_manifests.node_class.resource)
        await self._api.patch(kind, NAME, {"spec": fields})

    async def retire(self) -> None:
        """Delete pods, NodePool and NodeClass; the controller removes nodes and the rest."""
        retired_kinds = {"Deployment", "NodePool", self._demo_manifests.node_class.resource.kind}
        for kind, metadata in reversed(self._created):
            if kind.kind in retired_kinds:
                await self._delete(kind, metadata)

    async def wait_retired(self) -> None:
        """Wait until the controller has removed its finalizer from the NodeClass."""
        from karpenter_core.errors import NotFoundError
        from karpenter_core.kube.resources import custom_kind

        with contextlib.suppress(NotFoundError):
            while True:
                await self._api.get(custom_kind(self._demo_manifests.node_class.resource), NAME)
                await asyncio.sleep(_POLL_SECONDS)

    async def clear(self) -> None:
        """Delete the remaining objects of the demo, and CRDs that it installed if they are unused."""
        from karpenter_core.api.crd import crd_name
        from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, custom_kind

        for kind, metadata in reversed(self._created):
            await self._delete(kind, metadata)
        for model in reversed(self._installed):
            if await self._is_unused(custom_kind(model.resource)):
                name = {"name": crd_name(model.resource)}
                await self._delete(CUSTOM_RESOURCE_DEFINITIONS, name)

    async def _install(self, model: type[KubernetesObject]) -> None:
        from karpenter_core.api.crd import render_crd
        from karpenter_core.errors import ConflictError, NotFoundError
        from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, custom_kind

        try:
            await self._api.create(CUSTOM_RESOURCE_DEFINITIONS, render_crd(model))
        except ConflictError:
            return  # it is there already, and stays
        self._installed.append(model)
        async with asyncio.timeout(_START_SECONDS):
            while True:
                try:
                    await self._api.list_page(custom_kind(model.resource))
                except NotFoundError:
                    await asyncio.sleep(_POLL_SECONDS)
                else:
                    return

    async def _create(self, kind: ResourceKind, manifest: JsonObject) -> None:
        from karpenter_core.errors import ConflictError, SettingsError

        namespace = manifest["metadata"].get("namespace", "")
        try:
            await self._api.create(kind, manifest, namespace=namespace)
        except ConflictError as error:
            raise SettingsError(
                f"{error}; is another demo running, or was one killed? Delete the namespace, "
                "NodePool and NodeClass of that name first"
            ) from error
        self._created.append((kind, manifest["metadata"]))

    async def _is_unused(self, kind: ResourceKind) -> bool:
        import msgspec

        from karpenter_core.errors import ApiError

        try:
            page: JsonObject = msgspec.json.decode(await self._api.list_page(kind, limit=1))
        except ApiError:
            return False
        return not page["items"]

    async def _delete(self, kind: ResourceKind, metadata: JsonObject) -> None:
        from karpenter_core.errors import ApiError, NotFoundError

        try:
            await self._api.delete(kind, metadata["name"], namespace=metadata.get("namespace", ""))
        except NotFoundError:
            pass
        except ApiError as error:
            self._view.say(f"could not clean up: {error}")
