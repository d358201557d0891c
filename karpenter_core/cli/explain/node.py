"""Explains for one node what each disruption method would do, or why not.

The methods themselves provide the results (`disruption.explain`); this module converts them to the
JSON and the texts of `karpenter explain node`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.durations import format_duration
from karpenter_core.api.labels import DISRUPTED_TAINT, INITIALIZED, INSTANCE_TYPE
from karpenter_core.api.nodeclaim import DRIFTED
from karpenter_core.api.returning import return_rule
from karpenter_core.cli.disruption_passes import count_virtual, disruption_pass
from karpenter_core.cli.document import instant_text, offering
from karpenter_core.cli.explain.leaving import leaving_cause
from karpenter_core.cli.explain.tables import NODE_STATES
from karpenter_core.cli.missing_objects import names_or_none
from karpenter_core.cli.obstacles import OBSTACLES, blocked_text
from karpenter_core.cli.plan_notes import predicted_change, schedule_notes
from karpenter_core.cli.tables import counted
from karpenter_core.disruption.acceptance import DeclineReason
from karpenter_core.disruption.blocked_nodes import DisruptionObstacle
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.explain import (
    SEVERAL,
    MethodExplanation,
    MethodVerdict,
    StateNodeExplanation,
    explain_state_node,
)
from karpenter_core.disruption.plan import METHODS, methods_of
from karpenter_core.errors import BadInputError
from karpenter_core.lifecycle.node.surge_move import asks_for_surge, early_refusal
from karpenter_core.lifecycle.nodeclaim.consolidatable import consolidatable_at
from karpenter_core.state.node_identity import is_node_of
from karpenter_core.state.request_predictions import RequestPredictions
from karpenter_core.state.static_pools import is_static
from karpenter_core.state.termination_deadline import deadline_of
from karpenter_core.state.virtual_pods import virtual_count_key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeView
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.cli.cluster_source import CommandInput
    from karpenter_core.disruption.budgets import PoolBudget
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import DisruptionMethod, DisruptionPass
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["find_state_node", "node_explanation"]

_NEAR: Final = 5
_DIGITS: Final = 9
_DECISIVE: Final = "single-node-consolidation"
"""The method whose verdict says most about a node that stays; of an empty one it is that of emptiness."""
_DECISIVE_OF_EMPTY: Final = "emptiness"
_DECLINED: Final = {
    DeclineReason.STATIC: 'NodePool "{pool}" is static (spec.replicas)',
    DeclineReason.DISABLED: 'NodePool "{pool}" has no annotation karpenter.sh/return-after',
    DeclineReason.BUFFER: "it is empty, and room on it is kept free for virtual pods",
    DeclineReason.EMPTY: "it is empty, so that the method emptiness applies",
    DeclineReason.POLICY: 'NodePool "{pool}" consolidates empty nodes only (WhenEmpty)',
    DeclineReason.NOT_DRIFTED: "it has not drifted",
    DeclineReason.NOT_SHUT_DOWN: 'NodePool "{pool}" is not shut down',
    DeclineReason.FIRST_CHOICE: "it is the first choice already",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExplainedNode:
    """The facts about a node that texts need."""

    state_node: StateNode
    pool: NodePool | None
    now: datetime

    @property
    def pods(self) -> int:
        """Number of pods that would have to move."""
        return sum(pod.is_reschedulable for pod in self.state_node.pods)

    @property
    def settle_time(self) -> datetime | None:
        """End of `consolidateAfter`; None if it is unknown or never ends."""
        if self.state_node.claim is None or self.pool is None:
            return None
        return consolidatable_at(self.state_node.claim, self.pool)


def find_state_node(cluster: ClusterInput, name: str) -> StateNode:
    """Return the state node of the Node, or of the NodeClaim, of this name.

    Raises:
        BadInputError: there is none; suggests similar names.
    """
    snapshot = cluster.snapshot
    state_node = snapshot.state_nodes_by_node.get(name) or snapshot.state_nodes_by_claim.get(name)
    if state_node is not None:
        return state_node
    if name in snapshot.nodes:
        claim = _claim_of_unlabelled(snapshot, snapshot.nodes[name])
        if claim:
            raise BadInputError(
                f'node "{name}" cannot be used yet: it has neither the label {INSTANCE_TYPE} nor'
                f' {INITIALIZED}; explain its NodeClaim "{claim}"'
            )
        raise BadInputError(
            f'node "{name}" is of a NodePool and has no provider ID, or that of another node:'
            " it is ignored"
        )
    known_names = sorted({*snapshot.nodes, *snapshot.node_claims})
    near = get_close_matches(name, known_names, n=_NEAR)
    if near:
        hint = f"; near: {', '.join(near)}"
    elif known_names:
        hint = f"; nodes: {names_or_none(known_names)}"
    else:
        hint = "; there are no nodes"
    raise BadInputError(f'no node "{name}"{hint}')


def _claim_of_unlabelled(snapshot: Snapshot, node: NodeView) -> str:
    """Return the claim that waits for the labels of a Node; empty if the Node is not used for other reasons."""
    for name, state_node in sorted(snapshot.state_nodes_by_claim.items()):
        claim = state_node.claim
        if claim is not None and claim.status.provider_id == node.provider_id != "":
            return name if is_node_of(claim, node) else ""
    return ""


def node_explanation(command_input: CommandInput, state_node: StateNode) -> dict[str, object]:
    """Return the JSON of `karpenter explain node` for a node."""
    cluster = count_virtual(command_input.cluster)
    planner_pass = disruption_pass(
        command_input, cluster.snapshot, now=cluster.now, command_id="explain"
    )
    pool = cluster.snapshot.node_pools.get(state_node.pool)
    methods = _methods(planner_pass, pool)
    answer = explain_state_node(planner_pass, state_node, methods=methods)
    node = _ExplainedNode(state_node=state_node, pool=pool, now=cluster.now)
    state = _state(answer)
    prices = planner_pass.prices
    offering_found = prices.offering_of(state_node)
    origin: dict[str, object] = {}
    if offering_found is not None and offering_found.list_price is not None:
        origin = {
            "listPricePerHour": prices.convert(offering_found.list_price),
            "priceSource": offering_found.price_source,
        }
    paid = prices.paid_anyway(state_node)
    if paid:
        origin["paidByCommitments"] = paid
    message = _message(answer, node, state)
    cause = _cause(answer, node, state) or message
    if state == "going" and state_node.claim is not None and state_node.claim.is_deleting:
        cause = leaving_cause(cluster, state_node.claim, state_node) or cause
    return {
        "node": "" if state_node.node is None else state_node.node.name,
        "nodeClaim": "" if state_node.claim is None else state_node.claim.name,
        "nodePool": state_node.pool,
        "state": state,
        "answer": f"{state_node.name}: {_lead(state)}{cause}",
        "cause": cause,
        "message": message,
        "pods": node.pods,
        **_virtual_part(cluster.snapshot, state_node),
        **_surge_part(node),
        **_predicted_part(cluster.snapshot, node),
        "pricePerHour": prices.convert(prices.price_of(state_node)) or None,
        **origin,
        **_schedule_part(cluster.snapshot, state_node.pool),
        "settlesAt": None if node.settle_time is None else instant_text(node.settle_time),
        "methods": {item.method.name: _method(item, node) for item in answer.methods},
    }


def _methods(planner_pass: DisruptionPass, pool: NodePool | None) -> tuple[DisruptionMethod, ...]:
    """Return the methods that say something of the nodes of a pool.

    Of a dynamic pool the method for static ones says nothing, and of a pool without a shutdown that
    of shutdowns.
    """
    if pool is None:
        return METHODS
    schedule = planner_pass.snapshot.pool_schedules.get(pool.name)
    options = replace(
        planner_pass.options,
        static_capacity=planner_pass.options.static_capacity and is_static(pool),
    )
    return methods_of(options, shuts_down=schedule is not None and schedule.shutdown is not None)


def _schedule_part(snapshot: Snapshot, pool: str) -> dict[str, object]:
    """Return the open windows of a pool and the next edge, if it has schedules."""
    notes = schedule_notes(snapshot, {pool})
    return {"schedule": notes[0]} if notes else {}


def _virtual_part(snapshot: Snapshot, state_node: StateNode) -> dict[str, object]:
    """Return the number of virtual pods for which room on the node is kept, if there are any."""
    count = (snapshot.virtual_pod_counts or {}).get(virtual_count_key(state_node), 0)
    return {"virtualPods": count} if count else {}


def _surge_part(node: _ExplainedNode) -> dict[str, object]:
    """Return the pods that ask to be replaced before an eviction, with why not, if there are any."""
    state_node = node.state_node
    deadline = deadline_of(state_node.claim)
    moves = {
        pod.key: early_refusal(pod, deadline=deadline, now=node.now) or None
        for pod in state_node.pods
        if asks_for_surge(pod) and pod.is_reschedulable
    }
    return {"surgeMoves": dict(sorted(moves.items()))} if moves else {}


def _predicted_part(snapshot: Snapshot, node: _ExplainedNode) -> dict[str, object]:
    """Return by how much pods that move will ask for more or less, as autoscalers recommend."""
    count, amounts = predicted_change(RequestPredictions(snapshot, node.now), node.state_node.pods)
    return {"predictedRequests": {"pods": count, "change": amounts}} if count else {}


# -- as a whole ------------------------------------------------------------------------------------


def _state(answer: StateNodeExplanation) -> str:
    if answer.state_node.claim is None:
        return "unmanaged"
    if _is_deleted(answer.state_node) or _is_tainted(answer.state_node):
        return "going"
    verdicts = {item.verdict: item for item in reversed(answer.methods)}
    chosen = verdicts.get(MethodVerdict.CHOSEN)
    if chosen is not None and chosen.method is answer.winner:
        return "disrupted"
    if MethodVerdict.CHOSEN in verdicts or MethodVerdict.LATER in verdicts:
        return "later"
    return "budget" if MethodVerdict.BUDGET in verdicts else "stays"


def _is_deleted(state_node: StateNode) -> bool:
    is_deleting = state_node.node is not None and state_node.node.is_deleting
    return is_deleting or state_node.marked_for_deletion


def _is_tainted(state_node: StateNode) -> bool:
    node = state_node.node
    return node is not None and any(taint.key == DISRUPTED_TAINT for taint in node.taints)


def _message(answer: StateNodeExplanation, node: _ExplainedNode, state: str) -> str:
    state_node = answer.state_node
    if state == "unmanaged":
        return OBSTACLES[DisruptionObstacle.UNMANAGED]
    if state == "going":
        if _is_deleted(state_node):
            return OBSTACLES[DisruptionObstacle.DELETION]
        return (
            f'a disruption command is in progress for it, or has left its taint "{DISRUPTED_TAINT}"'
        )
    expected_verdict = {"disrupted": MethodVerdict.CHOSEN, "budget": MethodVerdict.BUDGET}.get(
        state
    )
    for item in answer.methods:
        is_reported = item.verdict is expected_verdict or (
            state == "later" and item.verdict in {MethodVerdict.CHOSEN, MethodVerdict.LATER}
        )
        if not is_reported:
            continue
        if state == "budget" and item.budget is not None:
            return f"{item.method.name} would disrupt it, but {_budget_text(item.budget)}"
        if state == "disrupted":
            again = ", after a validation some seconds later" if item.method.is_validated else ""
            return f"{item.method.name} disrupts it now{again}"
        first = (
            "" if answer.winner is None else f" after the current command of {answer.winner.name}"
        )
        return f"{item.method.name} would disrupt it{first}"
    waits = any(item.decline_reason is DeclineReason.UNSETTLED for item in answer.methods)
    if waits and node.settle_time is not None and node.settle_time > node.now:
        return f"no method disrupts it before {instant_text(node.settle_time)}"
    return "no method disrupts it"


def _lead(state: str) -> str:
    """Return the words for a state before the cause; nothing where the cause says it."""
    return f"{NODE_STATES[state]}: " if state in {"stays", "going"} else ""


def _cause(answer: StateNodeExplanation, node: _ExplainedNode, state: str) -> str:
    """Return the first cause for which a node stays; empty if the message says it.

    That is what blocks it, else the buffer whose room an empty node is, else why consolidation would not remove
    it, else why it does not apply.
    """
    if state != "stays":
        return ""
    is_empty = any(item.decline_reason is DeclineReason.EMPTY for item in answer.methods)
    decisive = _DECISIVE_OF_EMPTY if is_empty else _DECISIVE
    methods = sorted(answer.methods, key=lambda item: item.method.name != decisive)
    telling = [
        *(item for item in methods if item.verdict is MethodVerdict.BLOCKED),
        *(item for item in methods if item.decline_reason is DeclineReason.BUFFER),
        *(item for item in methods if item.verdict is MethodVerdict.REFUSED),
        *(item for item in methods if item.verdict is MethodVerdict.DECLINED),
    ]
    return _method_message(telling[0], node) if telling else ""


# -- by method -------------------------------------------------------------------------------------


def _method(answer: MethodExplanation, node: _ExplainedNode) -> dict[str, object]:
    blocked = answer.blocked
    return {
        "reason": str(answer.method.reason),
        "verdict": answer.verdict.value,
        "obstacle": None if blocked is None else blocked.obstacle.value,
        "subjects": [] if blocked is None else list(blocked.subjects),
        "declined": None if answer.decline_reason is None else answer.decline_reason.value,
        "message": _method_message(answer, node),
        "budget": None if answer.budget is None else _budget(answer.budget),
        "eligible": answer.eligible,
        "score": _score(answer),
        "after": list(answer.others),
        "move": None if answer.command is None else _move(answer.command),
    }


def _method_message(answer: MethodExplanation, node: _ExplainedNode) -> str:
    match answer.verdict:
        case MethodVerdict.BLOCKED if answer.blocked is not None:
            return blocked_text(answer.blocked)
        case MethodVerdict.DECLINED:
            return _declined_text(answer, node)
        case MethodVerdict.BUDGET if answer.budget is not None:
            return _budget_text(answer.budget)
        case MethodVerdict.CHOSEN if answer.command is not None:
            return _move_text(answer.command)
        case MethodVerdict.LATER:
            first = (
                f"disrupts first: {names_or_none(answer.others)}"
                if answer.others
                else "not in this pass"
            )
            return first if answer.command is None else f"{_move_text(answer.command)}; {first}"
        case _:
            return _refused_text(answer)


def _declined_text(answer: MethodExplanation, node: _ExplainedNode) -> str:
    name = node.state_node.pool
    match answer.decline_reason:
        case DeclineReason.DISABLED if answer.messages:
            return f'NodePool "{name}" is not consolidated (consolidateAfter: Never)'
        case DeclineReason.NOT_EMPTY:
            return f"it is not empty: {counted(node.pods, 'pod')} would have to move"
        case DeclineReason.UNSETTLED:
            return _unsettled_text(node)
        case DeclineReason.DETECT_ONLY:
            return f'{_drift_text(node.state_node)}, and NodePool "{name}" only reports drift'
        case DeclineReason.DRIFT_BACKOFF:
            return f'{_drift_text(node.state_node)}; replacements in NodePool "{name}" kept failing'
        case DeclineReason.YOUNG:
            rule = None if node.pool is None else return_rule(node.pool)
            age = "" if rule is None else f" of {format_duration(rule.after)}"
            return f'it has not reached the age{age} at which nodes of NodePool "{name}" return'
        case DeclineReason() as declined if declined in _DECLINED:
            return _DECLINED[declined].format(pool=name)
        case _:
            return next(iter(answer.messages), "it does not apply to this node")


def _drift_text(state_node: StateNode) -> str:
    conditions = () if state_node.claim is None else state_node.claim.status.conditions
    condition = find_condition(conditions, DRIFTED)
    reason = "" if condition is None or not condition.reason else f" ({condition.reason})"
    return f"it has drifted{reason}"


def _unsettled_text(node: _ExplainedNode) -> str:
    after = None if node.pool is None else node.pool.spec.disruption.consolidate_after.timedelta
    window = "consolidateAfter" if after is None else f"consolidateAfter ({format_duration(after)})"
    settles = node.settle_time
    if settles is None:
        return f"{window} has not started: it is not known since when the node is initialised"
    if settles > node.now:
        return f"{window} ends at {instant_text(settles)}, if no pod is added or removed until then"
    return f"{window} ended at {instant_text(settles)}, but it lacks the condition Consolidatable"


def _refused_text(answer: MethodExplanation) -> str:
    if answer.messages:
        return "; ".join(answer.messages)
    if answer.scores:
        score = answer.scores[0]
        return (
            f'the policy {score.policy} of NodePool "{score.pool}" rejects it: score {score.score:.2f},'
            f" {100 * score.savings_share:.1f} % saved for {100 * score.disruption_share:.1f} %"
            " disrupted"
        )
    if answer.method.reason is DisruptionReason.DRIFTED:
        return "it has drifted, and is not replaced now"
    if answer.method.consolidation_type == SEVERAL and answer.eligible == 1:
        return "there is no other node to remove together with it"
    return "no consolidation that includes it saves money"


def _budget_text(budget: PoolBudget) -> str:
    if budget.errors:
        return "; ".join(budget.errors)
    text = (
        f'the budgets of NodePool "{budget.pool}" allow {budget.allowed} of'
        f" {counted(budget.total, 'node')} for reason {budget.reason}"
    )
    if budget.consuming:
        verb = "is" if budget.consuming == 1 else "are"
        text += f", and {budget.consuming} {verb} being disrupted or not ready"
    return text


# -- moves -----------------------------------------------------------------------------------------


def _move_text(command: Command) -> str:
    count = len(command.candidates)
    what = (
        "it is removed" if count == 1 else f"it is removed with {counted(count - 1, 'other node')}"
    )
    launched = len(command.replacements)
    if launched:
        what += f", {counted(launched, 'new node')} in {'its' if count == 1 else 'their'} place"
    saved = command.evidence.savings_per_hour
    if saved < 0:
        return f"{what}; costs {-saved:.4f} per hour more"
    return f"{what}; saves {saved:.4f} per hour"


def _move(command: Command) -> dict[str, object]:
    return {
        "decision": str(command.decision),
        "nodes": [candidate.node.name for candidate in command.candidates],
        "existingNodes": {
            name: sorted(pod.key for pod in pods) for name, pods in sorted(command.moves.items())
        },
        "nodeClaims": [
            {
                "nodePool": planned.pool,
                "pods": sorted(pod.key for pod in planned.pods if not pod.is_virtual),
                "instanceTypes": list(planned.instance_types),
                "cheapest": offering(planned.cheapest),
            }
            for planned in command.replacements
        ],
        "savingsPerHour": round(command.evidence.savings_per_hour, _DIGITS),
    }


def _budget(budget: PoolBudget) -> dict[str, object]:
    return {
        "nodes": budget.total,
        "allowed": min(budget.allowed, budget.total),
        "consuming": budget.consuming,
        "remaining": max(min(budget.remaining, budget.total - budget.consuming), 0),
    }


def _score(answer: MethodExplanation) -> Mapping[str, object] | None:
    """Return the score of the policy Balanced, if it applies."""
    for score in answer.scores:
        if score.policy == "Balanced":
            return {
                "approved": score.approved,
                "score": round(score.score, 4),
                "savingsShare": round(score.savings_share, 4),
                "disruptionShare": round(score.disruption_share, 4),
            }
    return None
