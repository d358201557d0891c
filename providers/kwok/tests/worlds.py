"""A kwok provider in virtual time, with its Nodes."""

from __future__ import annotations

from pathlib import Path

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.durations import Duration
from karpenter_core.api.labels import INSTANCE_TYPE
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.provider.host.executor import InlineExecutor
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.testing.provider_world import FakeNodes, ProviderWorld
from karpenter_provider_kwok.api import KWOKNodeClass, KWOKNodeClassSpec
from karpenter_provider_kwok.dump import dump_store
from karpenter_provider_kwok.plugin import KwokProvider


def node_class(name="default", *, registration_delay=None, **fields) -> KWOKNodeClass:
    delay = Duration(registration_delay) if registration_delay else None
    return KWOKNodeClass(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", resource_version="1"),
        spec=KWOKNodeClassSpec(node_registration_delay=delay),
        **fields,
    )


def only(*types: str) -> RequirementSpec:
    """Return the requirement for one of these instance types."""
    return RequirementSpec(key=INSTANCE_TYPE, operator="In", values=types)


class KwokWorld(ProviderWorld):
    """Adds what only kwok has."""

    @property
    def plugin(self) -> KwokProvider:
        return self.plugins["kwok"]

    @property
    def cloud(self):
        return self.plugin.cloud

    def dump(self):
        return dump_store(self.plugin.store, now=self.clock.now())


async def launch(world: KwokWorld, name="web-1", **options):
    """Launch for a new claim of the default NodeClass."""
    return await world.launch(await world.request(name, node_class(), **options))


def run_kwok(scenario, folder: Path, *, nodes: FakeNodes | None = None, **settings):
    """Run a scenario against a started provider; settings by name with underscores."""

    async def main():
        world = KwokWorld(
            plugins={"kwok": KwokProvider()},
            cache_folder=folder,
            clock=LoopClock(),
            executor=InlineExecutor(),
            settings={name.replace("_", "-"): value for name, value in settings.items()},
            nodes=nodes or FakeNodes(),
        )
        async with world:
            return await scenario(world)

    return run_virtual(main())
