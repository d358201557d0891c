"""Holds the services of the process that all parts of a started provider share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.provider.kit.disk_cache import DiskCache

if TYPE_CHECKING:
    from karpenter_core.provider.contract import ProviderContext
    from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.arm.client import ArmClient
    from karpenter_provider_azure.json_service import JsonService
    from karpenter_provider_azure.metrics import AzureMetrics
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["ProviderServices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderServices:
    """The services of the process that every part may use."""

    context: ProviderContext
    settings: AzureSettings
    arm: ArmClient
    json: JsonService
    metrics: AzureMetrics
    node_classes: NodeClassRegistry[AKSNodeClass]

    def disk(self, name: str, version: str) -> DiskCache:
        """Return the cache on disk of one kind of data of the region."""
        name = f"azure-{name}-{self.settings.location}"
        return DiskCache(self.context.cache_folder, name, version=version)
