"""Computes free resources of nodes, less requests of daemons to come.

A claim without instance is capacity too. Its instance type is open, so it offers the minimum over
its types, each less the daemons of that type: enough for the pods that it was created for. A new
leader, which does not know those pods' placements, therefore places them there and launches nothing
twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.labels import HOSTNAME, NODES
from karpenter_core.api.quantities import parse_resources
from karpenter_core.scheduling.problem import DaemonPod, ExistingNode
from karpenter_core.scheduling.requirements import NodeLabels, Requirements, read_expressions
from karpenter_core.scheduling.resources import element_min, fits, merge, subtract
from karpenter_core.scheduling.taints import first_untolerated
from karpenter_core.state.node_pool_usage import is_launched, listed_types
from karpenter_core.state.pod_volumes import PodVolumeReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import (
        HostPort,
        NodeSelectorRequirement,
        NodeSelectorTerm,
        NodeView,
        PodShape,
        PodView,
        Resources,
    )
    from karpenter_core.state.request_predictions import RequestPredictions
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["ExistingNodeBuilder", "daemon_pods", "required_terms", "selects_node"]

_PREFERENCE: Final = "PreferNoSchedule"
_NAME_FIELD: Final = "metadata.name"
_NO_NAME: Final = ""
"""That of a node that does not exist yet."""


def daemon_pods(snapshot: Snapshot, *, ignores_devices: bool) -> tuple[DaemonPod, ...]:
    """Return the pod that each DaemonSet puts on a node.

    The newest of its pods shows the actual requests (quotas and webhooks change them); the node
    terms are the template's, if it has any, since a running pod is pinned to its node. With
    `ignores_devices`, those with ResourceClaims are left out: they will not run. Otherwise their
    resources count, and their devices on new nodes (`state.device_inventory`).
    """
    daemons: list[DaemonPod] = []
    for name, daemon_set in sorted(snapshot.daemon_sets.items()):
        newest = snapshot.daemon_pods.get(daemon_set.uid)
        shape = daemon_set.template
        if newest is not None:
            shape = _with_terms_of(newest.shape, shape)
        shape = _without_host_name_presence(shape)
        if not (ignores_devices and shape.resource_claims):
            daemons.append(DaemonPod(name=name, shape=shape))
    return tuple(daemons)


def _with_terms_of(shape: PodShape, template: PodShape) -> PodShape:
    import msgspec

    if not template.required_node_terms:
        return shape
    return msgspec.structs.replace(shape, required_node_terms=template.required_node_terms)


def _without_host_name_presence(shape: PodShape) -> PodShape:
    """Drop `kubernetes.io/hostname Exists`: every node has the label, a new one with a name of its own."""
    import msgspec

    if not any(map(_names_host, shape.required_node_terms)):
        return shape
    terms = tuple(
        msgspec.structs.replace(
            term, match_expressions=tuple(e for e in term.match_expressions if not _is_host(e))
        )
        for term in shape.required_node_terms
    )
    if not all(term.match_expressions or term.match_fields for term in terms):
        terms = ()  # one of them selects every node
    return msgspec.structs.replace(shape, required_node_terms=terms)


def _names_host(term: NodeSelectorTerm) -> bool:
    return any(map(_is_host, term.match_expressions))


def _is_host(expression: NodeSelectorRequirement) -> bool:
    return expression.key == HOSTNAME and expression.operator == "Exists"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _DaemonTerms:
    """A daemon pod with its selectors read: any one of `terms` must hold."""

    pod: DaemonPod
    terms: tuple[tuple[_NodeFields, NodeLabels], ...]

    @property
    def terms_of_new_nodes(self) -> tuple[NodeLabels, ...]:
        """Those that a node without a name can meet."""
        return tuple(term for fields, term in self.terms if _admits_name(fields, _NO_NAME))

    def runs_on(self, name: str, labels: Mapping[str, str]) -> bool:
        """Tell whether a node with this name and these labels is selected."""
        return any(
            _admits_name(fields, name) and term.select(labels) for fields, term in self.terms
        )

    def may_run_on(self, requirements: Requirements, well_known: frozenset[str]) -> bool:
        """Tell whether a new node that these requirements describe may be selected."""
        return any(
            term.may_select(requirements, allow_undefined=well_known)
            for term in self.terms_of_new_nodes
        )


def _admits_name(fields: _NodeFields, name: str) -> bool:
    return all(
        field.key == _NAME_FIELD and (name in field.values) is (field.operator == "In")
        for field in fields
    )


def _of_new_nodes(daemons: Iterable[DaemonPod]) -> tuple[DaemonPod, ...]:
    """Return the daemons of nodes that do not exist yet: those of one named node run on none."""
    import msgspec

    found: list[DaemonPod] = []
    for daemon in daemons:
        terms = daemon.shape.required_node_terms
        if not any(term.match_fields for term in terms):
            found.append(daemon)
            continue
        met = [term for term in terms if _admits_name(term.match_fields, _NO_NAME)]
        if met:
            kept = tuple(msgspec.structs.replace(term, match_fields=()) for term in met)
            if not all(term.match_expressions for term in kept):
                kept = ()  # one of them selects every new node
            shape = msgspec.structs.replace(daemon.shape, required_node_terms=kept)
            found.append(DaemonPod(name=daemon.name, shape=shape))
    return tuple(found)


_NodeFields: TypeAlias = "tuple[NodeSelectorRequirement, ...]"
"""Conditions of the node's name (`matchFields`)."""
_FreeResources: TypeAlias = "tuple[Resources, Resources, Requirements | None]"
"""Capacity, free resources, and the requirements of a claim whose instance type is open."""


@final
class ExistingNodeBuilder:
    """Turns state nodes into `ExistingNode`s for one pass."""

    __slots__ = (
        "_aliases", "_claim_resources", "_daemons", "_present_daemons", "_snapshot", "_volumes",
        "_well_known", "daemons", "settings",
    )  # fmt: skip

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        well_known: frozenset[str],
        aliases: Mapping[str, str],
        volumes: PodVolumeReader | None,
        ignores_devices: bool,
        predictions: RequestPredictions | None,
    ) -> None:
        """With `predictions`, daemons that are still to be created ask for what these say."""
        self._snapshot = snapshot
        self._volumes = volumes or PodVolumeReader(snapshot, aliases=aliases)
        self._well_known = well_known
        self._aliases = aliases
        self._claim_resources: dict[tuple[object, ...], _FreeResources] = {}
        present = daemon_pods(snapshot, ignores_devices=ignores_devices)
        coming = predictions.apply_to_daemons(present) if predictions else present
        self.daemons: Final = _of_new_nodes(coming)
        self._daemons = tuple(
            _DaemonTerms(pod=pod, terms=_terms(pod.shape, aliases)) for pod in coming
        )
        # Those of an initialised node are there, and stay as they are.
        self._present_daemons = self._daemons
        if predictions:
            self._present_daemons = tuple(
                _DaemonTerms(pod=pod, terms=_terms(pod.shape, aliases)) for pod in present
            )

        self.settings: Final = (
            tuple((pod.name, pod.shape) for pod in coming),
            tuple((pod.name, pod.shape) for pod in present),
            well_known,
            dict(aliases),
        )
        """Everything that launched nodes depend on beside the snapshot; compared by value."""

    def existing_node(self, state_node: StateNode, waiting: Iterable[PodView] = ()) -> ExistingNode:
        """Return a node with what is free on it beside the pods that wait for it."""
        waiting = tuple(waiting)
        pods = (*state_node.pods, *waiting)
        capacity, available, requirements = self._free_resources(state_node)
        reserved = merge(pod.shape.requests for pod in waiting)
        # The CSI drivers of a claim without node are unknown, so it may attach any number.
        csi = (
            None if state_node.node is None else self._snapshot.csi_nodes.get(state_node.node.name)
        )
        return ExistingNode(
            name=state_node.name,
            labels={HOSTNAME: state_node.name, **state_node.labels},
            taints=state_node.taints,
            available=_less(available, reserved),
            capacity=capacity,
            initialized=state_node.initialized,
            pool=state_node.pool,
            requirements=requirements,
            pods=pods,
            host_ports=_host_ports((*pods, *self._daemons_with_ports(state_node))),
            volume_limits={} if csi is None else csi.limits,
            volumes=self._volumes.attached_claims(pods),
            claim_name="" if state_node.claim is None else state_node.claim.name,
            node_name="" if state_node.node is None else state_node.node.name,
        )

    def closed_node(self, node: NodeView, pods: Iterable[PodView]) -> ExistingNode:
        """Return a Node that takes no more pods; those on it still count for topology."""
        pods = tuple(pods)
        return ExistingNode(
            name=node.name,
            labels={HOSTNAME: node.name, **node.labels},
            taints=node.taints,
            available={},
            capacity={},
            initialized=False,
            pods=pods,
            host_ports=_host_ports(pods),
            volumes=self._volumes.attached_claims(pods),
            closed=True,
            node_name=node.name,
        )

    def split_fitting(
        self, state_node: StateNode, placed: Iterable[PodView], candidates: Iterable[PodView]
    ) -> tuple[list[PodView], list[PodView]]:
        """Split pods into those that still fit on a node and those that do not, in order.

        The resources of the `placed` pods are reserved on the node.
        """
        _, available, _ = self._free_resources(state_node)
        hard = [taint for taint in state_node.taints if taint.effect != _PREFERENCE]
        remaining = _less(available, merge(pod.shape.requests for pod in placed))
        accepted: list[PodView] = []
        refused: list[PodView] = []
        for pod in candidates:
            is_tolerated = first_untolerated(hard, pod.shape.tolerations) is None
            (accepted if is_tolerated else refused).append(pod)
        if fits(merge(pod.shape.requests for pod in accepted), remaining):
            return accepted, refused
        tolerating, accepted = accepted, []
        for pod in tolerating:
            if fits(pod.shape.requests, remaining):
                remaining = _less(remaining, pod.shape.requests)
                accepted.append(pod)
            else:
                refused.append(pod)
        return accepted, refused

    def daemons_on(self, state_node: StateNode) -> list[DaemonPod]:
        """Return the DaemonSets that run, or may run, on a node."""
        return self._running(self._known_daemons(state_node), state_node)

    def _daemons_with_ports(self, state_node: StateNode) -> list[DaemonPod]:
        """Return those that hold host ports there, or will as soon as the node is there."""
        daemons = self._known_daemons(state_node)
        with_ports = [item for item in daemons if item.pod.shape.host_ports]
        return self._running(with_ports, state_node) if with_ports else []

    def _running(self, daemons: Iterable[_DaemonTerms], state_node: StateNode) -> list[DaemonPod]:
        tolerating = _tolerating(daemons, state_node)
        if is_launched(state_node) or state_node.claim is None:
            name, labels = state_node.name, state_node.labels
            return [item.pod for item in tolerating if item.runs_on(name, labels)]
        requirements = self._claim_requirements(state_node.claim)
        return [item.pod for item in tolerating if item.may_run_on(requirements, self._well_known)]

    def _claim_requirements(self, claim: NodeClaim) -> Requirements:
        return Requirements.from_specs(claim.spec.requirements, aliases=self._aliases).merge(
            Requirements.from_labels(claim.metadata.labels, aliases=self._aliases)
        )

    def _free_resources(self, state_node: StateNode) -> _FreeResources:
        if is_launched(state_node) or state_node.claim is None:
            daemons = merge(daemon.shape.requests for daemon in self.daemons_on(state_node))
            still_to_come = {
                name: max(amount - state_node.daemon_requests.get(name, 0), 0)
                for name, amount in daemons.items()
            }
            still_to_come = _of_present(still_to_come, state_node.allocatable)
            free = subtract(subtract(state_node.allocatable, state_node.requests), still_to_come)
            return _without_nodes(state_node.capacity), free, None
        return self._free_resources_of_claim(state_node, state_node.claim)

    def _free_resources_of_claim(self, state_node: StateNode, claim: NodeClaim) -> _FreeResources:
        key = (
            state_node.pool,
            claim.spec.requirements,
            tuple(sorted((name, str(q)) for name, q in claim.spec.resources.requests.items())),
            tuple(sorted(claim.metadata.labels.items())),
            state_node.taints,
        )
        free = self._claim_resources.get(key)
        if free is None:
            free = self._claim_resources[key] = self._compute_free_resources(state_node, claim)
        return free

    def _compute_free_resources(self, state_node: StateNode, claim: NodeClaim) -> _FreeResources:
        requirements = self._claim_requirements(claim)
        types = listed_types(claim, self._snapshot.catalogues.get(state_node.pool))
        if not types:
            # Without a catalogue only the claim's own requests are certain.
            requested = parse_resources(claim.spec.resources.requests)
            return requested, requested, requirements
        tolerating = [
            item
            for item in _tolerating(self._known_daemons(state_node), state_node)
            if item.may_run_on(requirements, self._well_known)
        ]
        free = element_min(
            subtract(
                it.allocatable(),
                _of_present(
                    merge(
                        item.pod.shape.requests
                        for item in tolerating
                        if any(
                            it.requirements.intersects(term.requirements)
                            for term in item.terms_of_new_nodes
                        )
                    ),
                    it.capacity,
                ),
            )
            for it in types
        )
        return element_min(it.capacity for it in types), free, requirements

    def _known_daemons(self, state_node: StateNode) -> Iterable[_DaemonTerms]:
        return self._present_daemons if state_node.initialized else self._daemons


def _tolerating(daemons: Iterable[_DaemonTerms], state_node: StateNode) -> list[_DaemonTerms]:
    return [
        item
        for item in daemons
        if first_untolerated(state_node.taints, item.pod.shape.tolerations) is None
    ]


def selects_node(
    shape: PodShape, name: str, labels: Mapping[str, str], aliases: Mapping[str, str]
) -> bool:
    """Tell whether selector and required terms of a shape allow a node of this name and labels."""
    return any(
        _admits_name(fields, name) and term.select(labels)
        for fields, term in _terms(shape, aliases)
    )


def required_terms(shape: PodShape, aliases: Mapping[str, str]) -> tuple[NodeLabels, ...]:
    """Return what a shape requires of a node that has no name yet: one of them must hold."""
    return tuple(term for fields, term in _terms(shape, aliases) if _admits_name(fields, _NO_NAME))


def _terms(
    shape: PodShape, aliases: Mapping[str, str]
) -> tuple[tuple[_NodeFields, NodeLabels], ...]:
    """Return the fields and labels of each term that some node can meet."""
    selector = Requirements.from_labels(shape.node_selector, aliases=aliases)
    if not shape.required_node_terms:
        return (((), NodeLabels(selector, frozenset())),)
    met: list[tuple[_NodeFields, NodeLabels]] = []
    for term in shape.required_node_terms:
        expressions = read_expressions(term.match_expressions, aliases=aliases)
        labels = NodeLabels.of((*selector.values(), *expressions))
        if labels is not None:
            met.append((term.match_fields, labels))
    return tuple(met)


def _of_present(requests: Resources, present: Resources) -> dict[str, int]:
    """Return what daemons request without devices that a node lacks: it is not overdrawn by them."""
    return {name: amount for name, amount in requests.items() if present.get(name, 0) > 0}


def _less(amounts: Resources, subtracted: Resources) -> dict[str, int]:
    """Subtract, also from absent resources: the request for a missing device becomes negative."""
    remaining = subtract(amounts, subtracted)
    for name, amount in subtracted.items():
        if amount and name not in remaining:
            remaining[name] = -amount
    return remaining


def _without_nodes(amounts: Resources) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if name != NODES}


def _host_ports(pods: Iterable[PodView | DaemonPod]) -> tuple[HostPort, ...]:
    return tuple(dict.fromkeys(port for pod in pods for port in pod.shape.host_ports))
