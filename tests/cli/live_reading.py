"""Reads the cluster of a harness as a command does that runs beside the controller, in simulated time."""

from __future__ import annotations

from dataclasses import dataclass
from unittest.mock import patch

from karpenter_core.cli.cluster_source import ClusterSource
from karpenter_core.cli.document import plan_document
from karpenter_core.cli.explain.node import find_state_node, node_explanation
from karpenter_core.cli.explain.nodeclaim import find_node_claim, node_claim_explanation
from karpenter_core.cli.explain.nodepool import find_node_pool, node_pool_explanation
from karpenter_core.cli.explain.pod import find_pod, pod_explanation
from karpenter_core.cli.plan import refused_launches, solve_cluster
from karpenter_core.cli.top.feed import view_of
from karpenter_core.cli.top.view import ViewOptions
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.host.manager import load_plugins
from karpenter_provider_kwok.plugin import KwokProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class _SourceBesideController(ClusterSource):
    """A live source with the settings of a running controller."""

    arguments: tuple[str, ...] = ()

    def plugins_and_settings(self):
        plugins = load_plugins(extra={"kwok": KwokProvider()}, entry_points=())
        specs = [spec for specs in plugins.settings().values() for spec in specs]
        return plugins, load_settings(self.arguments, {}, plugin_options=specs)


class CommandAnswers:
    """Answers of the commands about a live cluster at one moment."""

    def __init__(self, command_input):
        self._input = command_input
        self._plan = solve_cluster(command_input.cluster)

    def pod(self, key):
        cluster = self._input.cluster
        pod = find_pod(cluster, key)
        refusal = self._input.refusal_of(pod)
        return pod_explanation(cluster, pod, self._plan, is_live=True, refusal=refusal)

    def node(self, name):
        return node_explanation(self._input, find_state_node(self._input.cluster, name))

    def node_claim(self, name):
        return node_claim_explanation(self._input, find_node_claim(self._input.cluster, name))

    def node_pool(self, name):
        pool = find_node_pool(self._input.cluster, name)
        return node_pool_explanation(self._input, pool, self._plan)

    def plan(self):
        return plan_document(self._input.cluster, self._plan)

    def refused_launches(self):
        return refused_launches(self._input, self._plan)

    def top(self):
        return view_of(self._input, ViewOptions(resources=("cpu", "memory"), node_selector={}))


async def read_live(harness, *arguments):
    """Return the answers of commands that are called now, with the settings of the controller."""

    async def connect(**_):
        return harness.cluster.transport()

    with (
        patch("karpenter_core.kube.client.connect", connect),
        patch("karpenter_core.operator.clock.SystemClock", lambda: harness.cluster.clock),
        patch("karpenter_core.cli.live_cluster.log_to_stderr"),
    ):
        source = _SourceBesideController(arguments=arguments, with_decisions=True)
        return CommandAnswers(await source.read())
