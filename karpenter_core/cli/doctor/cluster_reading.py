"""Reads a cluster and its catalogues for the checks of `karpenter doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.cli.catalogues import CatalogueSource, max_instance_types
from karpenter_core.cli.cluster_input import LocatedObject, build_cluster
from karpenter_core.cli.cluster_listing import CLUSTER, list_cluster
from karpenter_core.cli.command_input import context_of
from karpenter_core.cli.object_reader import ObjectDecoder
from karpenter_core.operator.clock import SystemClock
from karpenter_core.operator.kind_groups import kind_groups
from karpenter_core.operator.solve_options import solve_options

if TYPE_CHECKING:
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.kube.api import ClusterApis
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.host.facade import Providers

__all__ = ["read_cluster"]


async def read_cluster(providers: Providers, settings: Settings, apis: ClusterApis) -> ClusterInput:
    """List the cluster, and leave out NodePools whose catalogue cannot be listed.

    Raises:
        ApiError: the cluster does not answer, or refuses.
    """
    labels = providers.label_classes()
    groups = kind_groups(settings)
    reader = ObjectDecoder(providers.node_class_models(), labels, groups=groups)
    listing = await list_cluster(apis, reader.codecs)
    return await build_cluster(
        [LocatedObject(CLUSTER, found) for found in listing.objects],
        CatalogueSource(providers, with_file=False),
        context_of(
            settings,
            now=SystemClock().now(),
            options=solve_options(settings, max_instance_types=max_instance_types(providers)),
            labels=labels,
            groups=groups,
        ),
        is_lenient=True,
        notes=listing.notes,
    )
