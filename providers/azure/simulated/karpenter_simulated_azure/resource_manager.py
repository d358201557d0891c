"""Everything of the simulated Azure except virtual machines.

All of it is behind one application.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.ids import IdGenerator
from karpenter_simulated_azure.application import Application
from karpenter_simulated_azure.cluster import ClusterResources
from karpenter_simulated_azure.galleries import Galleries
from karpenter_simulated_azure.graph import GraphResource, ResourceGraph
from karpenter_simulated_azure.interface_calls import InterfaceCalls
from karpenter_simulated_azure.network_interfaces import NetworkInterfaces
from karpenter_simulated_azure.networks import Networks
from karpenter_simulated_azure.operations import Operations
from karpenter_simulated_azure.prices import AzurePrices, RetailPrices
from karpenter_simulated_azure.sizes import Sizes
from karpenter_simulated_azure.usages import Usages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_simulated_azure.arm_api import ArmRoutes
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["ResourceManager"]


@final
class ResourceManager:
    """Azure Resource Manager, tokens and prices; the virtual machines add their routes to it."""

    def __init__(
        self,
        world: AzureWorld,
        clock: Callable[[], datetime],
        *,
        skus: Iterable[JsonMapping] | None = None,
    ) -> None:
        """Take the SKUs of the region, by default those of the table; `reset` builds the world."""
        self.world: Final = world
        self.clock: Final = clock
        self.ids: Final = IdGenerator(f"{world.subscription_id}/{world.location}")
        self.application: Final = Application(world, clock, self.ids)
        self.operations: Final = Operations(clock, self.ids, world.location)
        self.sizes: Final = Sizes(world, skus)
        self.usages: Final = Usages(world, self.sizes)
        self.prices: Final = AzurePrices(clock, self.sizes)
        self.retail_prices: Final = RetailPrices(world, self.sizes, self.prices)
        self.galleries: Final = Galleries(world, clock)
        self.networks: Final = Networks(world, self.ids)
        self.interfaces: Final = NetworkInterfaces(world, self.networks, clock, self.ids)
        self.interface_calls: Final = InterfaceCalls(
            world, self.interfaces, self.operations, self.application.permissions, clock
        )
        self.cluster: Final = ClusterResources(world)
        self.graph: Final = ResourceGraph(world, clock, self.application.permissions)
        self.graph.add_source(self._interfaces_of_graph)
        for part in (
            self.cluster,
            self.galleries,
            self.graph,
            self.interface_calls,
            self.networks,
            self.operations,
            self.retail_prices,
            self.sizes,
            self.usages,
        ):
            part.add_routes(self.routes)

    @property
    def routes(self) -> ArmRoutes:
        """The routes."""
        return self.application.routes

    def reset(self) -> None:
        """Build the world, and nothing else."""
        for part in (
            self.application,
            self.graph,
            self.interface_calls,
            self.interfaces,
            self.operations,
            self.prices,
            self.usages,
        ):
            part.clear()
        for part in (self.cluster, self.galleries, self.networks, self.sizes):
            part.reset()

    def _interfaces_of_graph(self) -> Iterator[GraphResource]:
        now = self.clock()
        for each in self.interfaces.remembered:
            yield GraphResource(
                body=each.to_json(now), created_at=each.created_at, gone_at=each.gone_at
            )
