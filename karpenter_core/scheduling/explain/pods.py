"""What keeps a pod away because of other pods: topology spread, and affinity both ways.

Each topology group is asked what it allows now, by the same caps that the engine places by. What a
pool's machines can be is narrowed group by group, spread constraints first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from karpenter_core.scheduling.compiled.topology import Kind
from karpenter_core.scheduling.explain.options import listed
from karpenter_core.scheduling.problem import Constraint, PoolRejection

if TYPE_CHECKING:
    from karpenter_core.scheduling.compiled.axes import Axis
    from karpenter_core.scheduling.compiled.topology import Group
    from karpenter_core.scheduling.explain.options import Answer, Option, Question
    from karpenter_core.scheduling.placement.counts import HostCaps
    from karpenter_core.scheduling.selectors import Selector

__all__ = ["narrow_by_pods"]

_MOST_OWNERS: Final = 3


def narrow_by_pods(question: Question, options: tuple[Option, ...]) -> Answer:
    """Keep the domains that topology groups allow."""
    axes = {axis.key: axis for axis in question.compiled.axes}
    for group in _in_order(question):
        if group.is_host:
            caps = _host_caps(question, group)
            if caps.new <= 0 and not caps.first:
                return _no_new_node(question, options, group)
            continue
        view = _View(question, group, axes[group.key], options)
        options = question.in_domains(options, view.axis, view.admitted)
        if not options:
            return view.rejection()
        if len(view.admitted) < len(view.reach):
            question.remarks.append(f"{view.title()} leaves {view.names(view.admitted)}")
    return options


def _in_order(question: Question) -> list[Group]:
    """Return the groups that restrict a pod: its own as it has them, then those of other pods."""
    own = question.rung.owned

    def place(group: Group) -> tuple[bool, int, str]:
        position = own.index(group) if group in own else len(own)
        namespaces = "" if group.namespaces is None else sorted(group.namespaces)
        return (
            group.kind is not Kind.SPREAD,
            position,
            f"{group.key} {namespaces} {group.selector}",
        )

    return sorted(question.rung.bound, key=place)


def _host_caps(question: Question, group: Group) -> HostCaps:
    ties = replace(question.ties, host=(group,))
    return question.engine.counts.host_caps(ties, question.engine.nodes.count)


def _no_new_node(question: Question, options: tuple[Option, ...], group: Group) -> PoolRejection:
    """Say that pods have to join others on the nodes of these."""
    row = question.engine.counts.host.get(group.index)
    columns = [] if row is None else np.flatnonzero(row[: question.engine.nodes.count]).tolist()
    nodes = question.compiled.nodes
    there = [nodes[column].name for column in columns if column < len(nodes)]
    planned = len(columns) - len(there)
    if planned:
        there.append(f"{planned} planned {'node' if planned == 1 else 'nodes'}")
    detail = f"required pod affinity over {group.key} to {_pods(question, group)}: "
    if there:
        detail += f"such pods are on {listed(there)} without room for it, and never on a new node"
        remedy = "make room on these nodes, or make the affinity preferred"
    else:
        detail += "no such pod is on any node"
        remedy = "start such a pod first, or make the affinity preferred"
    return PoolRejection(
        constraint=Constraint.AFFINITY,
        detail=question.remarked(detail),
        closest=question.cheapest(options),
        remedy=remedy,
    )


class _View:
    """One group over domains, as one pool's machines see it."""

    def __init__(
        self, question: Question, group: Group, axis: Axis, options: tuple[Option, ...]
    ) -> None:
        counts = question.engine.counts
        ties = replace(question.ties, zonal={axis.number: (group,)})
        self.question: Final = question
        self.group: Final = group
        self.axis: Final = axis
        self.options: Final = options
        tally = counts.tally(group)
        self.open: Final = counts.domain_caps(ties, axis.number).domains
        """The domains that the group allows."""
        self.counts: Final = tally.counts
        self.perhaps: Final = tally.perhaps or [0] * len(tally.counts)
        """Pods on machines of which it is not known yet whether they count there."""
        self.reach: Final = question.domains(options, axis)
        """The domains that a machine of the pool could be in."""
        self.admitted: Final = tuple(domain for domain in self.reach if domain in self.open)
        usable = tally.usable(question.ties.allowed[axis.number])
        self.eligible: Final = [domain for domain, it in enumerate(usable) if it]
        """The domains that are there for the pod."""

    def names(self, domains: tuple[int, ...] | list[int]) -> str:
        """Write domains for people."""
        return f"{self.axis.key} {listed(self.axis.names[domain] for domain in domains)}"

    def counted(self, domains: tuple[int, ...] | list[int]) -> str:
        """Write domains with what is counted there."""
        return listed(
            f"{self.axis.names[domain]} {self.counts[domain]}"
            + (f" (perhaps {self.perhaps[domain]} more)" if self.perhaps[domain] else "")
            for domain in domains
        )

    def title(self) -> str:
        """Name the constraint."""
        group, pods = self.group, _pods(self.question, self.group)
        match group.kind:
            case Kind.SPREAD:
                least = f", minDomains {group.min_domains}" if group.min_domains > 1 else ""
                return f"topology spread over {group.key} (maxSkew {group.max_skew}{least}, {pods})"
            case Kind.AFFINITY:
                return f"required pod affinity over {group.key} to {pods}"
            case Kind.ANTI:
                return f"required pod anti-affinity over {group.key} to {pods}"
            case Kind.INVERSE:
                owners = _owners(self.question, group)
                return f"required pod anti-affinity over {group.key} of {owners}"

    def rejection(self) -> PoolRejection:
        """Say why the group and the pool have no domain in common."""
        kind = self.group.kind
        where, remedy = self._spread() if kind is Kind.SPREAD else self._affinity()
        if not self.reach:
            where = f"no machine of the nodepool has the label {self.axis.key}"
            remedy = f"let the nodepool's machines have the label {self.axis.key}"
        return PoolRejection(
            constraint=Constraint.TOPOLOGY if kind is Kind.SPREAD else Constraint.AFFINITY,
            detail=self.question.remarked(f"{self.title()}: {where}"),
            closest=self.question.cheapest(self.options),
            remedy=remedy,
        )

    def _reached(self) -> str:
        return f"the nodepool can make nodes for it in {self._listed(self.reach)}"

    def _listed(self, domains: tuple[int, ...]) -> str:
        return listed(self.axis.names[domain] for domain in domains)

    def _spread(self) -> tuple[str, str]:
        """Say where a spread constraint allows the next pod."""
        group, eligible = self.group, self.eligible
        now = f"pods now: {self.counted(eligible)}"
        may = tuple(domain for domain in self.open if domain in eligible)
        relax = "raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway"
        if may:
            return (
                f"the next pod may only go to {self._listed(may)}, {self._reached()}; {now}",
                f"let the nodepool make nodes in {self._listed(may)}, {relax}",
            )
        if not eligible:
            return "no node, and no machine of any nodepool, is in a domain for it", relax
        if len(eligible) < group.min_domains:
            return (
                f"there are only {len(eligible)} of these domains, and each is full; {now}",
                f"lower minDomains, {relax}",
            )
        return f"every domain has too many of these pods; {now}", relax

    def _affinity(self) -> tuple[str, str]:
        """Say where the pods are that another one wants, or must not have, beside it."""
        there = tuple(domain for domain, count in enumerate(self.counts) if count > 0)
        if self.group.kind is not Kind.AFFINITY:
            return (
                f"such pods are, or may come to be, in {self.counted(there)}, {self._reached()}",
                "let the nodepool make nodes in other domains, or make the anti-affinity preferred",
            )
        maybe = tuple(domain for domain, count in enumerate(self.perhaps) if count > 0)
        if not there and maybe:
            return (
                f"it is not known yet in which of {self._listed(maybe)} such pods will be",
                "wait for the next pass, or make the affinity preferred",
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


def _pods(question: Question, group: Group) -> str:
    """Write which pods a group counts, as `kubectl` writes selectors."""
    if group.selector is None:
        return "no pods"
    text = _selector_text(group.selector)
    of = f"pods {text}" if text else "all pods"
    if group.namespaces is None:
        return f"{of} in any namespace"
    if group.namespaces == frozenset({question.pod_class.shape.namespace}):
        return of
    if not group.namespaces:
        return f"{of} in no namespace"
    return f"{of} in namespaces {listed(sorted(group.namespaces))}"


def _owners(question: Question, group: Group) -> str:
    """Name pods that run, or were placed, and whose anti-affinity a group stands for.

    If there is none: those that would.
    """
    engine, compiled = question.engine, question.compiled
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
                owns[id(pod.shape)] = group in compiled.index.groups.inverse_of(pod.shape)
            if owns[id(pod.shape)]:
                names.append(pod.key)
    return f"pods {listed(sorted(names or waiting), _MOST_OWNERS)}"


def _selector_text(selector: Selector) -> str:
    parts = [f"{key}={value}" for key, value in selector.labels]
    for key, operator, values in selector.expressions:
        match operator:
            case "In":
                parts.append(f"{key} in ({','.join(values)})")
            case "NotIn":
                parts.append(f"{key} notin ({','.join(values)})")
            case "Exists":
                parts.append(key)
            case _:
                parts.append(f"!{key}")
    return ",".join(parts)
