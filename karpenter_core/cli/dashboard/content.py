"""Makes the contents of the dashboard for `karpenter run`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from karpenter_core.api.decisions import Decision
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.cli.cluster_source import CommandInput
    from karpenter_core.cli.dashboard.document import DocumentCache
    from karpenter_core.operator.dashboard_content import ClusterMoment, Json

__all__ = ["ClusterContent"]


@final
class ClusterContent:
    """The view of `karpenter top`, and the answers of `karpenter explain`.

    Modules are imported at the first use: a controller without a dashboard needs none of them.
    """

    def __init__(self) -> None:
        self._cache: DocumentCache | None = None

    def load(self) -> None:
        """Import what the view and decisions need; explanations import theirs in their thread."""
        import_module("karpenter_core.cli.dashboard.document")

    def state(self, moment: ClusterMoment) -> Json:
        """Return the whole view."""
        from karpenter_core.cli.dashboard.document import DocumentCache, state_document

        if self._cache is None:
            self._cache = DocumentCache()
        return state_document(moment, self._cache)

    def decision(self, decision: Decision) -> Json:
        """Return the short form of a decision."""
        from karpenter_core.cli.dashboard.document import short_decision

        return short_decision(decision)

    def pods_of(self, moment: ClusterMoment, node: str) -> Json:
        """Return the pods of a node.

        Raises:
            BadInputError: there is no such node.
        """
        from karpenter_core.cli.dashboard.document import pods_document

        return pods_document(moment, node)

    def explain_node(self, moment: ClusterMoment, node: str) -> Json:
        """Return why a node is or is not disrupted, as `karpenter explain node -o json`.

        Raises:
            BadInputError: there is no such node.
        """
        from karpenter_core.cli.explain.node import find_state_node, node_explanation

        command_input = _input_of(moment)
        return node_explanation(command_input, find_state_node(command_input.cluster, node))

    def rebalance(self, moment: ClusterMoment) -> Json:
        """Return what one disruption pass would do now, as `karpenter plan -o json` at `disruption`."""
        from karpenter_core.cli.dashboard.document import short_rebalance
        from karpenter_core.cli.rebalance.document import rebalance_document
        from karpenter_core.cli.rebalance.simulation import disruptions_now

        return short_rebalance(rebalance_document(disruptions_now(_input_of(moment))))

    def explain_pod(self, moment: ClusterMoment, pod: str) -> Json:
        """Return why a pod is placed or pending, as `karpenter explain pod -o json`.

        Raises:
            BadInputError: there is no such pod.
        """
        from karpenter_core.cli.explain.pod import find_pod, pod_explanation
        from karpenter_core.cli.plan import solve_cluster

        cluster = _cluster_of(moment)
        found = find_pod(cluster, pod)
        return pod_explanation(cluster, found, solve_cluster(cluster), is_live=True)


def _input_of(moment: ClusterMoment) -> CommandInput:
    """Return the input of the disruption passes, with the settings of the controller."""
    from karpenter_core.cli.cluster_source import CommandInput

    return CommandInput(
        cluster=_cluster_of(moment),
        is_live=True,
        spot_to_spot=moment.spot_to_spot,
        static_capacity=moment.static_capacity,
        is_paused=moment.is_paused,
    )


def _cluster_of(moment: ClusterMoment) -> ClusterInput:
    """Return the scheduling problem of the moment, as the provisioner would plan it."""
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.state.provisioning_input import build_provisioning_input
    from karpenter_core.state.unusable_pools import unusable_pools

    problem_input = build_provisioning_input(
        moment.snapshot, now=moment.now, problem_settings=moment.problem_settings
    )
    return ClusterInput(
        input=problem_input,
        snapshot=moment.snapshot,
        options=moment.solve,
        now=moment.now,
        problem_settings=moment.problem_settings,
        unusable_pools={
            **unusable_pools(moment.snapshot, {}),
            **{name: refusal.message for name, refusal in problem_input.refused_pools.items()},
        },
    )
