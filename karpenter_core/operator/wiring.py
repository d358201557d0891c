"""Which controllers a leader runs, and what each of them is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.api.labels import ALIASES, RESTRICTED_DOMAIN, WELL_KNOWN
from karpenter_core.controllers.apply import Hands
from karpenter_core.controllers.catalogue.controller import CatalogueController
from karpenter_core.controllers.disruption.controller import DisruptionController
from karpenter_core.controllers.interruption.controller import InterruptionController
from karpenter_core.controllers.node.eviction import EvictionQueue
from karpenter_core.controllers.node.health import NodeHealth
from karpenter_core.controllers.node.termination import NodeTerminationController
from karpenter_core.controllers.nodeclaim.drift import DriftController
from karpenter_core.controllers.nodeclaim.garbage_collection import GarbageCollection
from karpenter_core.controllers.nodeclaim.instance_sync import InstanceSync
from karpenter_core.controllers.nodeclaim.lifecycle import NodeClaimLifecycle
from karpenter_core.controllers.nodeclass.controller import NodeClassController
from karpenter_core.controllers.nodepool.controller import NodePoolController
from karpenter_core.controllers.observability.cluster import Observability
from karpenter_core.controllers.observability.conditions import ConditionObserver
from karpenter_core.controllers.passes import pool_teller
from karpenter_core.controllers.provisioning.creation import ClaimCreator
from karpenter_core.controllers.provisioning.provisioner import Provisioner, ProvisioningOptions
from karpenter_core.disruption.method import DisruptionOptions
from karpenter_core.kube.resources import NODES, PODS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.lifecycle.node.health_rules import with_rules
from karpenter_core.lifecycle.nodeclaim.drift import DriftRules
from karpenter_core.lifecycle.nodepool.validation import LabelRules
from karpenter_core.scheduling.problem import (
    MinValuesPolicy,
    Packing,
    PreferencePolicy,
    SolveOptions,
)
from karpenter_core.state.brakes import Brakes
from karpenter_core.state.placements import nomination_window
from karpenter_core.state.pod_volumes import VolumesUnsupported
from karpenter_core.state.problem import Framing

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.api.notices import Notice
    from karpenter_core.controllers.feed import Feed
    from karpenter_core.controllers.freshness import Freshness
    from karpenter_core.controllers.reconciler import Controller, Runtime
    from karpenter_core.kube.informers import Informers
    from karpenter_core.kube.writer import Writer
    from karpenter_core.operator.ports import Ports
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.host.facade import Providers

__all__ = ["ControllerParts", "build_controllers", "solve_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerParts:
    """The parts of a process that its controllers are built from."""

    settings: Settings
    ports: Ports
    runtime: Runtime
    providers: Providers
    feed: Feed
    informers: Informers
    freshness: Freshness
    writer: Writer
    publish: Callable[[Notice], None]


def build_controllers(parts: ControllerParts) -> tuple[Controller, ...]:
    """Return the controllers of a process, wired together."""
    providers, runtime, settings = parts.providers, parts.runtime, parts.settings
    labels = providers.label_classes()
    hands = Hands(
        writer=parts.writer,
        feed=parts.feed,
        publish=parts.publish,
        metrics=parts.runtime.metrics,
        owns_nodes=parts.ports.workload is None,
    )
    runtime.passes.subscribe(pool_teller(hands))
    catalogue = CatalogueController(feed=parts.feed, providers=providers, runtime=runtime)
    freshness = parts.freshness
    evictions = EvictionQueue(hands=hands, runtime=runtime, freshness=freshness)
    brakes = Brakes(
        max_nodes_total=settings.max_nodes_total,
        launches_per_minute=settings.launches_per_minute,
    )
    options = ProvisioningOptions(
        batch_idle=settings.batch_idle_duration,
        batch_maximum=settings.batch_max_duration,
        solve=solve_options(
            settings,
            max_instance_types=min(
                (info.max_instance_types for info in providers.infos().values()), default=600
            ),
        ),
        framing=Framing(
            well_known=labels.well_known,
            aliases={**ALIASES, **labels.aliases},
            default_spread=settings.scheduler_config,
            unsupported_volumes=VolumesUnsupported(
                topology_keys=labels.unsupported_topology_keys,
                provisioners=labels.unsupported_provisioners,
            ),
            nomination_window=nomination_window(settings.batch_max_duration),
            brakes=brakes,
        ),
    )
    node_pools = NodePoolController(
        hands=hands,
        runtime=runtime,
        label_rules=LabelRules(
            well_known=WELL_KNOWN | labels.well_known,
            restricted_domains=labels.restricted_domains | {RESTRICTED_DOMAIN},
            aliases={**ALIASES, **labels.aliases},
            known_values=labels.known_values,
        ),
        catalogue_problem=catalogue.problem_of,
        currencies=catalogue.currencies_of,
        solve=options.solve,
    )
    catalogue.subscribe_problems(node_pools.wake)
    creator = ClaimCreator(
        hands=hands,
        runtime=runtime,
        brakes=brakes,
    )
    disruption = DisruptionController(
        hands=hands,
        providers=providers,
        creator=creator,
        planner=parts.ports.background,
        runtime=runtime,
        freshness=freshness,
        options=DisruptionOptions(
            framing=options.framing,
            solve=options.solve,
            spot_to_spot=settings.feature_gates.spot_to_spot_consolidation,
            paused=settings.pause_disruption,
        ),
    )
    return (
        catalogue,
        node_pools,
        NodeClassController(hands=hands, providers=providers, runtime=runtime),
        Provisioner(
            hands=hands,
            planner=parts.ports.planner,
            creator=creator,
            runtime=runtime,
            options=options,
            unevaluated_pools=catalogue.unevaluated,
        ),
        NodeClaimLifecycle(
            hands=hands,
            providers=providers,
            runtime=runtime,
            freshness=freshness,
            nodes=parts.informers[NODES],
            well_known=labels.well_known,
            launch_timeout=settings.launch_timeout,
            registration_timeout=settings.registration_timeout,
            paused=settings.pause_disruption,
        ),
        evictions,
        NodeTerminationController(
            hands=hands,
            providers=providers,
            evictions=evictions,
            runtime=runtime,
            freshness=freshness,
            pods=parts.informers[PODS],
            out_of_service=settings.out_of_service_taint,
        ),
        DriftController(
            hands=hands,
            providers=providers,
            runtime=runtime,
            freshness=freshness,
            rules=DriftRules(
                well_known=WELL_KNOWN | labels.well_known, aliases={**ALIASES, **labels.aliases}
            ),
        ),
        InstanceSync(hands=hands, providers=providers, runtime=runtime),
        GarbageCollection(
            hands=hands,
            providers=providers,
            runtime=runtime,
            freshness=freshness,
            claims=parts.informers[NODE_CLAIMS],
            pods=parts.informers[PODS],
        ),
        disruption,
        disruption.queue,
        *_repair(parts, hands),
        InterruptionController(
            hands=hands,
            providers=providers,
            runtime=runtime,
            act_on_rebalance=settings.act_on_rebalance,
        ),
        *_status(parts),
        Observability(
            feed=parts.feed,
            runtime=runtime,
            detailed=not settings.disable_cluster_state_observability,
            solve=options.solve,
            unevaluated_pools=catalogue.unevaluated,
        ),
    )


def _repair(parts: ControllerParts, hands: Hands) -> tuple[Controller, ...]:
    """Return the controller that repairs nodes, if anything is to be repaired."""
    settings = parts.settings
    policies = {
        name: with_rules(info.repair_policies, settings.repair_conditions)
        for name, info in parts.providers.infos().items()
    }
    if not settings.feature_gates.node_repair or not any(policies.values()):
        return ()
    return (
        NodeHealth(
            hands=hands,
            providers=parts.providers,
            runtime=parts.runtime,
            freshness=parts.freshness,
            policies=policies,
            limit=settings.repair_unhealthy_limit,
            paused=settings.pause_disruption,
        ),
    )


def _status(parts: ControllerParts) -> tuple[Controller, ...]:
    """Return the controller that tells of conditions, unless nobody wants to hear."""
    if parts.settings.disable_cluster_state_observability:
        return ()
    return (ConditionObserver(feed=parts.feed, publish=parts.publish, runtime=parts.runtime),)


def solve_options(settings: Settings, *, max_instance_types: int) -> SolveOptions:
    """Return how passes are computed."""
    return SolveOptions(
        packing=Packing(settings.packing),
        preferences=PreferencePolicy(settings.preference_policy),
        min_values=MinValuesPolicy(settings.min_values_policy),
        reserved_capacity=settings.feature_gates.reserved_capacity,
        max_instance_types=max_instance_types,
        currency=settings.currency,
        exchange_rates=settings.exchange_rates,
        node_fee_per_hour=settings.node_fee,
    )
