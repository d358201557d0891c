"""Defines the input and output of the solver.

`solve(problem, options) -> SchedulingPlan` is the only entry point of scheduling, for controllers,
CLI, simulator and benchmarks. Everything here is immutable data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.prices import DEFAULT_CURRENCY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.commitments import Commitment
    from karpenter_core.api.judgements import FailedJudgement
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import HostPort, PodShape, PodView, Resources, Taint
    from karpenter_core.scheduling.devices.inventory import DeviceInventory
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.scheduling.requirements import Requirement, Requirements

__all__ = [
    "MOST_NOMINATED_PODS",
    "Catalogue",
    "CheapestOffering",
    "CommitmentBalance",
    "DaemonPod",
    "ExistingNode",
    "LaunchQuota",
    "MinValuesPolicy",
    "PackingPolicy",
    "PlanCost",
    "PlannedNodeClaim",
    "PodVolumes",
    "PoolConstraint",
    "PoolRejection",
    "PreferencePolicy",
    "ReservationPolicy",
    "SchedulingPlan",
    "SchedulingProblem",
    "SolveOptions",
    "UnschedulablePod",
]


MOST_NOMINATED_PODS: Final = 1000
"""The number of waiting pods up to which all may be nominated for their planned nodes.

To nominate more would take seconds, in which the nodes wait, and keep the event loop busy.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Catalogue:
    """The instance types of one pool; compiled columns are cached by `version`.

    `version` changes exactly when a type, price or availability does (the mask of offerings that
    are out of stock is already applied to `available`).
    """

    version: str
    instance_types: tuple[InstanceType, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExistingNode:
    """Capacity that exists or is starting: a Node, or a NodeClaim without one.

    `available` is allocatable less everything bound or reserved, and less what DaemonSets will
    still put there; it includes `pods`. For a claim whose instance type is not known yet it is the
    element-wise minimum over the listed types.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    available: Resources
    capacity: Resources
    initialized: bool
    pool: str = ""
    requirements: Requirements | None = None
    """Replaces `labels` for a claim whose labels are not all decided."""
    pods: tuple[PodView, ...] = ()
    """Pods bound or reserved here, for topology, ports and volumes; their requests are taken."""
    host_ports: tuple[HostPort, ...] = ()
    volume_limits: Mapping[str, int] = field(default_factory=dict[str, int])
    """The most volumes of each CSI driver that the node attaches; absent: any number."""
    volumes: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Volume claims (`namespace/name`) that are or will be attached, by CSI driver."""
    closed: bool = False
    """Takes no more pods (it is being removed); the pods on it still count for topology."""
    claim_name: str = ""
    node_name: str = ""
    is_planned: bool = False
    """A claim of an earlier part of the same plan: pods that constraints over domains count may
    join it only if its domain is known, as with every claim of a plan."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodVolumes:
    """The requirements of one pod's volumes on its node.

    `alternatives` are label requirements of which one must hold, in the order in which they are
    tried; empty: none. They narrow the node, never the pod's own affinity, so topology counts as
    if they were not there. `attached` are the volume claims (`namespace/name`) by CSI driver.
    """

    alternatives: tuple[Requirements, ...] = ()
    attached: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DaemonPod:
    """The pod that one DaemonSet puts on every node that it may run on."""

    name: str
    shape: PodShape


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommitmentBalance:
    """A commitment, and what existing nodes and claims use of it."""

    commitment: Commitment
    requirements: Requirements
    used: int

    @property
    def remaining(self) -> int:
        """The units that are left."""
        return max(self.commitment.amount - self.used, 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchQuota:
    """A ceiling for all nodes whose labels meet requirements, of whichever NodePool.

    `used` is what existing nodes and claims hold of `limits`, with `nodes` and the price. With a
    `refusal` no node is launched that the quota may count.
    """

    name: str
    """Names the object for people: `CapacityQuota "team-a"`."""
    requirements: Requirements
    limits: Resources
    used: Resources = field(default_factory=dict[str, int])
    refusal: str = ""


class PackingPolicy(StrEnum):
    """The kind of plan: the cheapest valid one, or the reference's first-fit order."""

    VALUE = "value"
    FIRST_FIT = "first-fit"


class PreferencePolicy(StrEnum):
    """Whether preferences are tried before they are given up."""

    RESPECT = "Respect"
    IGNORE = "Ignore"


class ReservationPolicy(StrEnum):
    """Whether a pod may go without a reservation that other claims of this pass have taken.

    Strict (provisioning): the pod waits for the next pass rather than pay for other capacity or
    go to a lighter pool. Fallback (simulations): reservations are used as far as they go.
    """

    STRICT = "Strict"
    FALLBACK = "Fallback"


class MinValuesPolicy(StrEnum):
    """Whether a claim may have fewer distinct values than its pool asks for."""

    STRICT = "Strict"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveOptions:
    """Options of the solver; the defaults are those of the process."""

    packing: PackingPolicy = PackingPolicy.VALUE
    preferences: PreferencePolicy = PreferencePolicy.RESPECT
    min_values: MinValuesPolicy = MinValuesPolicy.STRICT
    reservations: ReservationPolicy = ReservationPolicy.STRICT
    reserved_capacity: bool = True
    """Whether reserved offerings are used at all (the feature gate `ReservedCapacity`)."""
    max_instance_types: int = 600  # upstream default
    currency: str = DEFAULT_CURRENCY
    exchange_rates: Mapping[str, float] = field(default_factory=dict[str, float])
    """Units of `currency` for one unit of another; pools without a rate go by weight only."""
    node_fee_per_hour: float = 0.01
    """The cost of a node beside its price, when plans are compared.

    That is an address, a root volume, DaemonSets, API calls and churn.

    Without it the cheapest plan is one of very many very small nodes: a twentieth of the nodes for
    a tenth of the price is the better deal. In the reporting currency; not part of reported costs.
    """
    robust_price_weight: float = 0.5
    """The weight, for spot, of the price of the `robust_price_rank`-th cheapest substitute."""
    robust_price_rank: int = 15
    flexibility_floor: int = 15
    """Stand-ins that a claim should have; more are not an advantage."""
    work_units: int = 50
    """Work units for plans beyond first-fit and the most promising one; 0 = none. A unit is about a
    tenth of a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SchedulingProblem:
    """The input of one scheduling pass: pods to place, and the capacity for them.

    `pools` are usable (ready, managed, not deleting, dynamic), in any order; a pool without a
    catalogue is skipped. Pods of `nodes` that are also among `pods` (their nodes are being removed)
    count nowhere until they are placed. `pool_usage` is what each pool's nodes and claims hold
    already (with `nodes`), for limits.
    """

    pods: tuple[PodView, ...]
    pools: tuple[NodePool, ...] = ()
    catalogues: Mapping[str, Catalogue] = field(default_factory=dict[str, "Catalogue"])
    nodes: tuple[ExistingNode, ...] = ()
    daemons: tuple[DaemonPod, ...] = ()
    pool_usage: Mapping[str, Resources] = field(default_factory=dict[str, "Resources"])
    well_known: frozenset[str] = frozenset()
    """Labels beyond the core's that every node is known to have (from the providers)."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    volumes: Mapping[str, PodVolumes] = field(default_factory=dict[str, PodVolumes])
    """By UID, for the pods whose volumes matter."""
    namespaces: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, "Mapping[str, str]"]
    )
    """Labels of every namespace, for the namespace selectors of pod (anti-)affinity."""
    max_new_nodes: int | None = None
    """The most nodes that may be launched, from all NodePools together; None is any number."""
    quotas: tuple[LaunchQuota, ...] = ()
    """A new node keeps within each of them that may count it."""
    commitments: tuple[CommitmentBalance, ...] = ()
    """In the order in which they cover nodes."""
    covered_pods: Mapping[str, tuple[PodView, ...]] = field(
        default_factory=dict[str, "tuple[PodView, ...]"]
    )
    """Virtual pods with the room of expendable pods, by node: a plan has them there."""
    devices: DeviceInventory | None = None
    """Devices from which ResourceClaims are allocated; None: pods with claims are not placed."""
    is_unnominated: bool = False
    """Whether too many pods wait to be nominated for nodes: kube-scheduler binds most as it likes."""


class PoolConstraint(StrEnum):
    """The closed list of constraints between pod and pool; the first that fails is reported."""

    PRIORITY = "priority"
    TAINT = "taint"
    REQUIREMENT = "requirement"
    RESOURCE = "resource"
    PORT = "port"
    VOLUME = "volume"
    DEVICE = "device"
    TOPOLOGY = "topology"
    AFFINITY = "affinity"
    LIMIT = "limit"
    MIN_VALUES = "minValues"
    RESERVATION = "reservation"
    OFFERING = "offering"
    DAEMON = "daemon"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRejection:
    """The reason why one pool cannot host one pod.

    `detail` names the taint, label, resource or limit with its values; `closest` is the instance
    type that misses least, empty when none is near.
    """

    constraint: PoolConstraint
    detail: str
    closest: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnschedulablePod:
    """The reason why a pod stays pending: a message, and the rejection of each pool."""

    message: str
    pools: Mapping[str, PoolRejection] = field(default_factory=dict[str, "PoolRejection"])


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapestOffering:
    """The cheapest way to launch a planned claim."""

    instance_type: str
    zone: str
    capacity_type: str
    price_per_hour: float
    list_price_per_hour: float | None = None
    """Price that the provider lists, if plug-ins or overlays have changed the price."""
    price_source: str = ""
    """Source of the change, as in `Offering.price_source`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedNodeClaim:
    """A NodeClaim to create: its requirements and the pods it is for.

    `requirements` and `instance_types` (names, cheapest first) are final: every listed type holds
    all the pods and the daemons of that type. `requests` is what `spec.resources.requests` says.
    """

    pool: str
    pods: tuple[PodView, ...]
    requirements: tuple[Requirement, ...]
    instance_types: tuple[str, ...]
    requests: Resources
    cheapest: CheapestOffering
    labels: Mapping[str, str]
    """Template labels plus the values of custom requirements that the node must carry."""
    capacity_max: Resources
    """Element-wise maximum over the listed types; it counts against limits."""
    min_values_relaxed: bool = False
    device_drivers: tuple[str, ...] = ()
    """The drivers whose devices the pods get from the node itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCost:
    """Cost of the new nodes per hour, in the options' currency."""

    hourly: float = 0.0
    lower_bound: float | None = None
    first_fit_hourly: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SchedulingPlan:
    """The output of a pass: the place of every pod, or the reason why it has none.

    `existing` maps the names of `ExistingNode`s to the pods put there, `unschedulable` pod UIDs
    to reasons. `partial` says that the pass was cut short: pods in neither place were not reached.
    """

    claims: tuple[PlannedNodeClaim, ...] = ()
    existing: Mapping[str, tuple[PodView, ...]] = field(
        default_factory=dict[str, "tuple[PodView, ...]"]
    )
    unschedulable: Mapping[str, UnschedulablePod] = field(
        default_factory=dict[str, "UnschedulablePod"]
    )
    cost: PlanCost = field(default_factory=PlanCost)
    sequence: tuple[str, ...] = ()
    """UIDs of the placed pods in an order in which each one passes the filters of the Kubernetes
    scheduler, given those before it."""
    pending_by_zone: Mapping[str, int] = field(default_factory=dict[str, int])
    """A metric: pods in phase Pending by the one zone they could go to before the pass."""
    partial: bool = False
    unusable_pools: Mapping[str, PoolConstraint] = field(
        default_factory=dict[str, "PoolConstraint"]
    )
    """NodePools that can launch no node for any pod: no available type meets their requirements
    (`requirement`), or too few of them do for `minValues`."""
    set_aside: tuple[FailedJudgement, ...] = ()
    """Objects that the pass left out, since evaluating them failed."""
