"""Explains rejections by topology spread and by pod (anti-)affinity.

Each topology group contributes the caps by which the engine places pods. The possible claims of a
pool are narrowed group by group, spread constraints first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.explain.options import listed
from karpenter_core.scheduling.problem import PoolConstraint, PoolRejection

if TYPE_CHECKING:
    from karpenter_core.scheduling.compiled.topology import PodFilter, TopologyGroup
    from karpenter_core.scheduling.compiled.topology_axes import TopologyAxis
    from karpenter_core.scheduling.explain.options import (
        ClaimOption,
        NarrowingResult,
        PoolExplanation,
    )
    from karpenter_core.scheduling.placement.topology_counts import HostCaps
    from karpenter_core.scheduling.selectors import PodSelector

__all__ = ["narrow_by_pods"]

_MAX_OWNERS: Final = 3
_SHOWN_TERMS: Final = 2
"""Terms of an affinity that are written beside the one that fails."""


def narrow_by_pods(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...]
) -> NarrowingResult:
    """Keep the domains that topology groups allow."""
    axes = {axis.key: axis for axis in explanation.compiled.axes}
    for group in _in_order(explanation):
        if group.is_host:
            caps = _host_caps(explanation, group)
            if caps.new <= 0 and not caps.first:
                return _no_new_node(explanation, options, group)
            continue
        view = _GroupView(explanation, group, axes[group.key], options)
        options = explanation.in_domains(options, view.axis, view.admitted)
        if not options:
            return view.rejection()
        if len(view.admitted) < len(view.reach):
            explanation.remarks.append(f"{view.title()} leaves {view.names(view.admitted)}")
    return options


def _in_order(explanation: PoolExplanation) -> list[TopologyGroup]:
    """Return the groups that restrict a pod: its own in their order, then those of other pods."""
    own = explanation.relaxation_step.owned

    def place(group: TopologyGroup) -> tuple[bool, int, str]:
        position = own.index(group) if group in own else len(own)
        pods = group.pods
        namespaces = "" if pods.namespaces is None else sorted(pods.namespaces)
        return (
            group.kind is not TopologyKind.SPREAD,
            position,
            f"{group.key} {namespaces} {pods.selector}",
        )

    return sorted(explanation.relaxation_step.bound, key=place)


def _host_caps(explanation: PoolExplanation, group: TopologyGroup) -> HostCaps:
    topology = replace(explanation.topology, host=(group,))
    return explanation.engine.counts.host_caps(topology, explanation.engine.nodes.count)


def _no_new_node(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...], group: TopologyGroup
) -> PoolRejection:
    """Return the rejection of pods that have to join other pods on existing nodes."""
    row = explanation.engine.counts.host.get(group.index)
    columns = [] if row is None else np.flatnonzero(row[: explanation.engine.nodes.count]).tolist()
    nodes = explanation.compiled.nodes
    there = [nodes[column].name for column in columns if column < len(nodes)]
    planned = len(columns) - len(there)
    if planned:
        there.append(f"{planned} planned {'node' if planned == 1 else 'nodes'}")
    detail = f"required pod affinity over {group.key} to {_pods(explanation, group)}: "
    if there:
        detail += f"such pods are on {listed(there)} without room for it, and never on a new node"
        remedy = "make room on these nodes, or make the affinity preferred"
    else:
        detail += "no such pod is on any node"
        remedy = "start such a pod first, or make the affinity preferred"
    return PoolRejection(
        constraint=PoolConstraint.AFFINITY,
        detail=explanation.with_remarks(detail),
        closest=explanation.cheapest(options),
        remedy=remedy,
    )


class _GroupView:
    """One group over domains, with the domains that one pool can reach."""

    def __init__(
        self,
        explanation: PoolExplanation,
        group: TopologyGroup,
        axis: TopologyAxis,
        options: tuple[ClaimOption, ...],
    ) -> None:
        counts = explanation.engine.counts
        topology = replace(explanation.topology, zonal={axis.number: (group,)})
        self.explanation: Final = explanation
        self.group: Final = group
        self.axis: Final = axis
        self.options: Final = options
        tally = counts.domain_counts(group)
        self.open: Final = counts.domain_caps(topology, axis.number).domains
        """The domains that the group allows."""
        self.counts: Final = tally.counts
        self.possible_counts: Final = tally.possible_counts or [0] * len(tally.counts)
        """Pods on claims of which it is open whether they count there."""
        self.reach: Final = explanation.domains(options, axis)
        """The domains that a node of the pool could be in."""
        self.admitted: Final = tuple(domain for domain in self.reach if domain in self.open)
        usable = tally.usable(explanation.topology.allowed[axis.number])
        self.eligible: Final = [domain for domain, it in enumerate(usable) if it]
        """The domains that are there for the pod."""

    def names(self, domains: tuple[int, ...] | list[int]) -> str:
        """Write domains for people."""
        return f"{self.axis.key} {listed(self.axis.names[domain] for domain in domains)}"

    def counted(self, domains: tuple[int, ...] | list[int]) -> str:
        """Write domains with what is counted there."""
        return listed(
            f"{self.axis.names[domain]} {self.counts[domain]}"
            + (
                f" (perhaps {self.possible_counts[domain]} more)"
                if self.possible_counts[domain]
                else ""
            )
            for domain in domains
        )

    def title(self) -> str:
        """Name the constraint."""
        group, pods = self.group, _pods(self.explanation, self.group)
        match group.kind:
            case TopologyKind.SPREAD:
                least = f", minDomains {group.min_domains}" if group.min_domains > 1 else ""
                return f"topology spread over {group.key} (maxSkew {group.max_skew}{least}, {pods})"
            case TopologyKind.AFFINITY:
                return f"required pod affinity over {group.key} to {pods}"
            case TopologyKind.ANTI:
                return f"required pod anti-affinity over {group.key} to {pods}"
            case TopologyKind.INVERSE:
                owners = _owners(self.explanation, group)
                return f"required pod anti-affinity over {group.key} of {owners}"

    def rejection(self) -> PoolRejection:
        """Say why the group and the pool have no domain in common."""
        kind = self.group.kind
        where, remedy = self._spread() if kind is TopologyKind.SPREAD else self._affinity()
        if not self.reach:
            where = f"no node of the nodepool has the label {self.axis.key}"
            remedy = f"give the nodepool's nodes the label {self.axis.key}"
        return PoolRejection(
            constraint=PoolConstraint.TOPOLOGY
            if kind is TopologyKind.SPREAD
            else PoolConstraint.AFFINITY,
            detail=self.explanation.with_remarks(f"{self.title()}: {where}"),
            closest=self.explanation.cheapest(self.options),
            remedy=remedy,
        )

    def _reached(self) -> str:
        return f"the nodepool can make nodes for it in {self._listed(self.reach)}"

    def _listed(self, domains: tuple[int, ...]) -> str:
        return listed(self.axis.names[domain] for domain in domains)

    def _spread(self) -> tuple[str, str]:
        """Write where a spread constraint allows the next pod.

        Where no domain is eligible no node of the pool has the label, and `rejection` says that.
        """
        group, eligible = self.group, self.eligible
        now = f"pods now: {self.counted(eligible)}"
        may = tuple(domain for domain in self.open if domain in eligible)
        relax = "raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway"
        if may:
            return (
                f"the next pod may only go to {self._listed(may)}, {self._reached()}; {now}",
                f"let the nodepool make nodes in {self._listed(may)}, {relax}",
            )
        if len(eligible) < group.min_domains:
            return (
                f"there are only {len(eligible)} of these domains, and each is full; {now}",
                f"lower minDomains, {relax}",
            )
        return f"every domain has too many of these pods; {now}", relax

    def _affinity(self) -> tuple[str, str]:
        """Write where the pods are that a pod must, or must not, run beside."""
        there = tuple(domain for domain, count in enumerate(self.counts) if count > 0)
        if self.group.kind is not TopologyKind.AFFINITY:
            return (
                f"such pods are, or may later be, in {self.counted(there)}, {self._reached()}",
                "let the nodepool make nodes in other domains, or make the anti-affinity preferred",
            )
        maybe = tuple(domain for domain, count in enumerate(self.possible_counts) if count > 0)
        if not there and maybe:
            return (
                f"it is not known yet in which of {self._listed(maybe)} such pods will be",
                "wait for the next pass, or make the affinity preferred",
            )
        counts, topology = self.explanation.engine.counts, self.explanation.topology
        if not there and counts.is_counted(self.group, topology):
            return (
                f"such pods are only on nodes without the label {self.axis.key}",
                "give these nodes the label, or make the affinity preferred",
            )
        if not there:
            return (
                "no such pod is anywhere",
                "start such a pod first, or make the affinity preferred",
            )
        return (
            f"such pods are in {self.counted(there)}, {self._reached()}",
            f"let the nodepool make nodes in {self._listed(there)}, or make the affinity preferred",
        )


def _pods(explanation: PoolExplanation, group: TopologyGroup) -> str:
    """Write which pods a group counts, as `kubectl` writes selectors."""
    own, others = explanation.pod_class.shape.namespace, group.other_terms
    shown = (group.pods, *others[:_SHOWN_TERMS])
    text = " that are also ".join(_filter_text(own, pods) for pods in shown)
    hidden = len(others) - _SHOWN_TERMS
    return text if hidden <= 0 else f"{text} and meet {hidden} more term{'s' * (hidden > 1)}"


def _filter_text(own_namespace: str, pods: PodFilter) -> str:
    if pods.selector is None:
        return "no pods"
    text = _selector_text(pods.selector)
    of = f"pods {text}" if text else "all pods"
    if pods.namespaces is None:
        return f"{of} in any namespace"
    if pods.namespaces == frozenset({own_namespace}):
        return of
    if not pods.namespaces:
        return f"{of} in no namespace"
    return f"{of} in namespaces {listed(sorted(pods.namespaces))}"


def _owners(explanation: PoolExplanation, group: TopologyGroup) -> str:
    """Name pods that run, or were placed, and whose anti-affinity a group stands for.

    If there is none: those that would.
    """
    engine, compiled = explanation.engine, explanation.compiled
    names: list[str] = []
    waiting: list[str] = []
    moving: set[str] = set()
    for index, pod_class in enumerate(compiled.classes):
        moving.update(pod.uid for pod in pod_class.members)
        if group in pod_class.counted:
            placed = len(pod_class.members) - engine.left.get(index, 0)
            names += (pod.key for pod in pod_class.members[:placed])
            waiting += (pod.key for pod in pod_class.members[placed:])
    owns = dict[int, bool]()
    for node in compiled.nodes:
        for pod in node.pods:
            if not pod.shape.pod_anti_affinity or pod.is_terminal or pod.uid in moving:
                continue
            if id(pod.shape) not in owns:
                owns[id(pod.shape)] = group in compiled.topology_groups.inverse_of(pod.shape)
            if owns[id(pod.shape)]:
                names.append(pod.key)
    return f"pods {listed(sorted(names or waiting), _MAX_OWNERS)}"


def _selector_text(selector: PodSelector) -> str:
    """Write a selector; a long one is cut, or one pod would fill log and journal."""
    parts = [f"{key}={value}" for key, value in selector.labels]
    for key, operator, values in selector.expressions:
        match operator:
            case "In":
                parts.append(f"{key} in ({listed(values, separator=',')})")
            case "NotIn":
                parts.append(f"{key} notin ({listed(values, separator=',')})")
            case "Exists":
                parts.append(key)
            case _:
                parts.append(f"!{key}")
    return listed(parts, separator=",")
