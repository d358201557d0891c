"""Builds the controllers that a leader runs, with their dependencies."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from karpenter_core.api.labels import ALIASES, WELL_KNOWN
from karpenter_core.controllers.capacity_buffer.controller import CapacityBufferController
from karpenter_core.controllers.capacity_quota.controller import CapacityQuotaController
from karpenter_core.controllers.catalogue.controller import CatalogueController
from karpenter_core.controllers.disruption.controller import DisruptionController
from karpenter_core.controllers.interruption.controller import InterruptionController
from karpenter_core.controllers.node.eviction import EvictionQueue
from karpenter_core.controllers.node.health import NodeHealthController
from karpenter_core.controllers.node.surge_moves import SurgeMoves
from karpenter_core.controllers.node.termination import NodeTerminationController
from karpenter_core.controllers.nodeclaim.drift import DriftController
from karpenter_core.controllers.nodeclaim.garbage_collection import GarbageCollectionController
from karpenter_core.controllers.nodeclaim.instance_sync import InstanceSyncController
from karpenter_core.controllers.nodeclaim.lifecycle import NodeClaimLifecycleController
from karpenter_core.controllers.nodeclass.controller import NodeClassController
from karpenter_core.controllers.nodeoverlay.controller import NodeOverlayController
from karpenter_core.controllers.nodepool.controller import NodePoolController
from karpenter_core.controllers.object_writer import ObjectWriter
from karpenter_core.controllers.observability.cluster import ClusterMetricsController
from karpenter_core.controllers.observability.conditions import ConditionObserver
from karpenter_core.controllers.observation.controller import ObservationController
from karpenter_core.controllers.observation.unjudged import UnjudgedNodePools
from karpenter_core.controllers.provisioning.claim_creator import ClaimCreator
from karpenter_core.controllers.provisioning.provisioner import Provisioner, ProvisioningOptions
from karpenter_core.controllers.provisioning_request.controller import (
    ProvisioningRequestController,
)
from karpenter_core.controllers.reconciling.passes import pool_failure_reporter
from karpenter_core.controllers.schedule.controller import ScheduleController
from karpenter_core.controllers.static.deprovisioning import StaticDeprovisioningController
from karpenter_core.controllers.static.provisioning import StaticProvisioningController
from karpenter_core.disruption.method import DisruptionOptions
from karpenter_core.kube.resources import NODES, PODS
from karpenter_core.kube.rollouts import fetch_rollout
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, PROVISIONING_REQUESTS
from karpenter_core.lifecycle.node.health_rules import apply_health_rules
from karpenter_core.lifecycle.nodeclaim.drift import DriftRules
from karpenter_core.operator.kind_groups import kind_groups
from karpenter_core.operator.label_rules import label_rules
from karpenter_core.operator.problem_settings import launch_limits_of, problem_settings
from karpenter_core.operator.solve_options import solve_options
from karpenter_core.state.placements import nomination_window

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.api.notices import Notice
    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.reconciling.freshness import FreshnessGuard
    from karpenter_core.controllers.reconciling.reconciler import Controller, ControllerRuntime
    from karpenter_core.kube.api import ClusterApis
    from karpenter_core.kube.informers import Informers
    from karpenter_core.kube.writer import KubeWriter
    from karpenter_core.operator.process_platform import ProcessPlatform
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.scheduling.problem import SolveOptions

__all__ = [
    "ControllerDependencies", "build_controllers", "build_observers", "provisioning_options",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerDependencies:
    """The parts of a process that its controllers are built from."""

    settings: Settings
    platform: ProcessPlatform
    runtime: ControllerRuntime
    providers: Providers
    cluster_state: ClusterState
    informers: Informers
    freshness: FreshnessGuard
    apis: ClusterApis
    kube_writer: KubeWriter
    publish: Callable[[Notice], None]


def build_controllers(dependencies: ControllerDependencies) -> tuple[Controller, ...]:
    """Return the controllers of a process, wired together, in the order they start."""
    providers, runtime = dependencies.providers, dependencies.runtime
    writer = ObjectWriter(
        kube_writer=dependencies.kube_writer,
        cluster_state=dependencies.cluster_state,
        publish=dependencies.publish,
        metrics=runtime.metrics,
        owns_nodes=dependencies.platform.workload is None,
    )
    runtime.passes.subscribe(
        pool_failure_reporter(dependencies.cluster_state.snapshot, dependencies.publish)
    )
    catalogue = CatalogueController(
        cluster_state=dependencies.cluster_state, providers=providers, runtime=runtime
    )
    options = provisioning_options(dependencies)
    planning_turn = asyncio.Lock()
    creator = ClaimCreator(
        writer=writer, runtime=runtime, launch_limits=options.problem_settings.launch_limits
    )
    node_pools = _node_pool_controller(dependencies, writer, catalogue, options.solve)
    disruption = _disruption_controllers(dependencies, writer, creator, options)
    return (
        catalogue,
        *_overlay_controllers(dependencies, writer),
        node_pools,
        ScheduleController(cluster_state=dependencies.cluster_state, runtime=runtime),
        NodeClassController(
            writer=writer,
            providers=providers,
            runtime=runtime,
            claims=dependencies.informers[NODE_CLAIMS],
        ),
        Provisioner(
            writer=writer,
            planner=dependencies.platform.planner,
            creator=creator,
            runtime=runtime,
            options=options,
            unevaluated_pools=catalogue.unlisted_pools,
            planning_turn=planning_turn,
        ),
        *_request_controllers(
            dependencies, writer, creator, options, planning_turn, catalogue.unlisted_pools
        ),
        _claim_lifecycle_controller(dependencies, writer),
        *_node_termination_controllers(dependencies, writer),
        *_claim_upkeep_controllers(dependencies, writer),
        *disruption,
        *_static_capacity_controllers(dependencies, writer, creator, options),
        *_repair_controllers(dependencies, writer),
        *_buffer_controllers(dependencies, writer),
        InterruptionController(
            writer=writer,
            providers=providers,
            runtime=runtime,
            act_on_rebalance=dependencies.settings.act_on_rebalance,
        ),
        *_quota_controllers(dependencies, writer, options),
        *_observability_controllers(dependencies, catalogue, options),
    )


def _request_controllers(
    dependencies: ControllerDependencies,
    writer: ObjectWriter,
    creator: ClaimCreator,
    options: ProvisioningOptions,
    planning_turn: asyncio.Lock,
    unevaluated_pools: Callable[[], tuple[str, ...]],
) -> tuple[Controller, ...]:
    """Return the controller of ProvisioningRequests, if they are to be served."""
    if not dependencies.settings.provisioning_requests:
        return ()
    return (
        ProvisioningRequestController(
            writer=writer,
            planner=dependencies.platform.planner,
            creator=creator,
            runtime=dependencies.runtime,
            options=options,
            planning_turn=planning_turn,
            unevaluated_pools=unevaluated_pools,
            is_served=partial(dependencies.informers.is_served, PROVISIONING_REQUESTS),
        ),
    )


def _quota_controllers(
    dependencies: ControllerDependencies, writer: ObjectWriter, options: ProvisioningOptions
) -> tuple[Controller, ...]:
    """Return the controller of CapacityQuotas, if they are enforced."""
    if not dependencies.settings.capacity_quotas:
        return ()
    return (
        CapacityQuotaController(
            writer=writer,
            runtime=dependencies.runtime,
            launch_limits=options.problem_settings.launch_limits,
        ),
    )


def build_observers(dependencies: ControllerDependencies) -> tuple[Controller, ...]:
    """Return the controllers of a process that only observes; none of them writes."""
    settings, runtime = dependencies.settings, dependencies.runtime
    catalogue = CatalogueController(
        cluster_state=dependencies.cluster_state,
        providers=dependencies.providers,
        runtime=runtime,
    )
    options = provisioning_options(dependencies)
    return (
        catalogue,
        *_overlay_controllers(dependencies, None),
        ScheduleController(cluster_state=dependencies.cluster_state, runtime=runtime),
        ObservationController(
            cluster_state=dependencies.cluster_state,
            planner=dependencies.platform.planner,
            runtime=runtime,
            options=options,
            other_nodes=settings.observe_nodes,
            unevaluated_pools=catalogue.unlisted_pools,
            unjudged=UnjudgedNodePools(
                providers=dependencies.providers,
                runtime=runtime,
                label_rules=label_rules(dependencies.providers.label_classes()),
            ),
        ),
        ClusterMetricsController(
            cluster_state=dependencies.cluster_state,
            runtime=runtime,
            detailed=not settings.disable_cluster_state_observability,
            solve=options.solve,
            unevaluated_pools=catalogue.unlisted_pools,
            counts_spending=False,
            problem_settings=options.problem_settings,
        ),
    )


def _overlay_controllers(
    dependencies: ControllerDependencies, writer: ObjectWriter | None
) -> tuple[Controller, ...]:
    """Return the controller of NodeOverlays if they are in use; it writes with a `writer` only."""
    if not dependencies.settings.feature_gates.node_overlay:
        return ()
    return (
        NodeOverlayController(
            cluster_state=dependencies.cluster_state,
            runtime=dependencies.runtime,
            label_rules=label_rules(dependencies.providers.label_classes()),
            writer=writer,
        ),
    )


def provisioning_options(dependencies: ControllerDependencies) -> ProvisioningOptions:
    """Return how pending pods are collected and planned for."""
    settings, providers = dependencies.settings, dependencies.providers
    return ProvisioningOptions(
        batch_idle=settings.batch_idle_duration,
        batch_maximum=settings.batch_max_duration,
        solve=solve_options(
            settings,
            max_instance_types=min(
                (info.max_instance_types for info in providers.infos().values()), default=600
            ),
        ),
        problem_settings=replace(
            problem_settings(
                providers.label_classes(),
                kind_groups(settings),
                default_spread=settings.scheduler_config,
                priority_cutoff=settings.priority_cutoff,
                commitments=settings.commitments,
                launch_limits=launch_limits_of(settings),
            ),
            nomination_window=nomination_window(settings.batch_max_duration),
        ),
    )


def _node_pool_controller(
    dependencies: ControllerDependencies,
    writer: ObjectWriter,
    catalogue: CatalogueController,
    solve: SolveOptions,
) -> NodePoolController:
    """Return the controller of NodePools, which hears of problems with their catalogues."""
    node_pools = NodePoolController(
        writer=writer,
        runtime=dependencies.runtime,
        label_rules=label_rules(dependencies.providers.label_classes()),
        catalogue_problem=catalogue.problem_of,
        currencies=catalogue.currencies_of,
        solve=solve,
        static_capacity=dependencies.settings.feature_gates.static_capacity,
    )
    catalogue.subscribe_problems(node_pools.wake)
    return node_pools


def _claim_lifecycle_controller(
    dependencies: ControllerDependencies, writer: ObjectWriter
) -> Controller:
    """Return the controller that launches, registers, initialises and ends claims."""
    settings = dependencies.settings
    return NodeClaimLifecycleController(
        writer=writer,
        providers=dependencies.providers,
        runtime=dependencies.runtime,
        freshness=dependencies.freshness,
        nodes=dependencies.informers[NODES],
        well_known=dependencies.providers.label_classes().well_known,
        ignores_devices=settings.ignore_dra_requests,
        launch_timeout=settings.launch_timeout,
        registration_timeout=settings.registration_timeout,
        initialization_timeout=settings.initialization_timeout,
        paused=settings.pause_disruption,
        static_capacity=settings.feature_gates.static_capacity,
    )


def _claim_upkeep_controllers(
    dependencies: ControllerDependencies, writer: ObjectWriter
) -> tuple[Controller, ...]:
    """Return the controllers that keep claims and instances in line: drift, tags, leaks."""
    providers, runtime = dependencies.providers, dependencies.runtime
    labels = providers.label_classes()
    return (
        DriftController(
            writer=writer,
            providers=providers,
            runtime=runtime,
            freshness=dependencies.freshness,
            rules=DriftRules(
                well_known=WELL_KNOWN | labels.well_known, aliases={**ALIASES, **labels.aliases}
            ),
        ),
        InstanceSyncController(
            cluster_state=dependencies.cluster_state, providers=providers, runtime=runtime
        ),
        GarbageCollectionController(
            writer=writer,
            providers=providers,
            runtime=runtime,
            freshness=dependencies.freshness,
            claims=dependencies.informers[NODE_CLAIMS],
            pods=dependencies.informers[PODS],
        ),
    )


def _node_termination_controllers(
    dependencies: ControllerDependencies, writer: ObjectWriter
) -> tuple[Controller, ...]:
    """Return the controllers that evict pods and end Nodes."""
    runtime, freshness = dependencies.runtime, dependencies.freshness
    evictions = EvictionQueue(
        writer=writer,
        runtime=runtime,
        freshness=freshness,
        surge_moves=SurgeMoves(
            writer=writer, runtime=runtime, read_rollout=partial(fetch_rollout, dependencies.apis)
        )
        if dependencies.settings.surge_moves
        else None,
    )
    return (
        evictions,
        NodeTerminationController(
            writer=writer,
            providers=dependencies.providers,
            evictions=evictions,
            runtime=runtime,
            freshness=freshness,
            pods=dependencies.informers[PODS],
            out_of_service=dependencies.settings.out_of_service_taint,
        ),
    )


def _disruption_controllers(
    dependencies: ControllerDependencies,
    writer: ObjectWriter,
    creator: ClaimCreator,
    options: ProvisioningOptions,
) -> tuple[Controller, ...]:
    """Return the controller that plans disruption, and the queue that carries it out."""
    settings = dependencies.settings
    disruption = DisruptionController(
        writer=writer,
        providers=dependencies.providers,
        creator=creator,
        planner=dependencies.platform.background,
        runtime=dependencies.runtime,
        freshness=dependencies.freshness,
        options=DisruptionOptions(
            problem_settings=options.problem_settings,
            solve=options.solve,
            spot_to_spot=settings.feature_gates.spot_to_spot_consolidation,
            static_capacity=settings.feature_gates.static_capacity,
            paused=settings.pause_disruption,
        ),
    )
    return disruption, disruption.queue


def _static_capacity_controllers(
    dependencies: ControllerDependencies,
    writer: ObjectWriter,
    creator: ClaimCreator,
    options: ProvisioningOptions,
) -> tuple[Controller, ...]:
    """Return the controllers of static NodePools; none while the feature gate is off."""
    if not dependencies.settings.feature_gates.static_capacity:
        return ()
    return (
        StaticProvisioningController(
            cluster_state=dependencies.cluster_state,
            creator=creator,
            runtime=dependencies.runtime,
            problem_settings=options.problem_settings,
            solve=options.solve,
        ),
        StaticDeprovisioningController(
            writer=writer, runtime=dependencies.runtime, freshness=dependencies.freshness
        ),
    )


def _repair_controllers(
    dependencies: ControllerDependencies, writer: ObjectWriter
) -> tuple[Controller, ...]:
    """Return the controller that repairs nodes, if anything is to be repaired."""
    settings = dependencies.settings
    policies = {
        name: apply_health_rules(info.repair_policies, settings.repair_conditions)
        for name, info in dependencies.providers.infos().items()
    }
    if not settings.feature_gates.node_repair or not any(policies.values()):
        return ()
    return (
        NodeHealthController(
            writer=writer,
            providers=dependencies.providers,
            runtime=dependencies.runtime,
            freshness=dependencies.freshness,
            policies=policies,
            limit=settings.repair_unhealthy_limit,
            paused=settings.pause_disruption,
            static_capacity=settings.feature_gates.static_capacity,
        ),
    )


def _buffer_controllers(
    dependencies: ControllerDependencies, writer: ObjectWriter
) -> tuple[Controller, ...]:
    """Return the controller of CapacityBuffers, if the feature gate is on."""
    if not dependencies.settings.feature_gates.capacity_buffer:
        return ()
    return (CapacityBufferController(writer=writer, runtime=dependencies.runtime),)


def _observability_controllers(
    dependencies: ControllerDependencies,
    catalogue: CatalogueController,
    options: ProvisioningOptions,
) -> tuple[Controller, ...]:
    """Return the controllers of metrics, and that of conditions unless it is disabled."""
    settings = dependencies.settings
    conditions = (
        ()
        if settings.disable_cluster_state_observability
        else (
            ConditionObserver(
                cluster_state=dependencies.cluster_state,
                publish=dependencies.publish,
                runtime=dependencies.runtime,
            ),
        )
    )
    return (
        *conditions,
        ClusterMetricsController(
            cluster_state=dependencies.cluster_state,
            runtime=dependencies.runtime,
            detailed=not settings.disable_cluster_state_observability,
            solve=options.solve,
            unevaluated_pools=catalogue.unlisted_pools,
            static_capacity=settings.feature_gates.static_capacity,
            problem_settings=options.problem_settings,
        ),
    )
