"""Launches one instance for each NodeClaim.

The core passes a claim again after a crash or an error, and there must never be two instances for
it. So existing instances are found first; then calls without an answer are repeated; the remaining
claims are launched.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, final

from karpenter_core.errors import BadInputError, CloudProviderError, InsufficientCapacityError
from karpenter_core.provider.kit.launch.cloud import Answer, Call, Described
from karpenter_core.provider.kit.launch.executor import CallExecutor
from karpenter_core.provider.kit.launch.existing_instances import ExistingInstances, as_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.launch.cloud import CloudTraits, LaunchCloud
    from karpenter_core.provider.kit.launch.instance_claims import InstanceClaims
    from karpenter_core.provider.kit.recent_launches import RecentLaunches

__all__ = ["ClaimLauncher"]

_CALLS_AT_ONCE: Final = 8


@final
class ClaimLauncher(Generic[Described, Call, Answer]):
    """Launches instances in a cloud; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        cloud: LaunchCloud[Described, Call, Answer],
        *,
        claims: InstanceClaims[Described],
        recent: RecentLaunches,
        traits: CloudTraits,
    ) -> None:
        self._cloud: Final = cloud
        self._traits: Final = traits
        self.executor: Final = CallExecutor(
            clock,
            cloud,
            claims=claims,
            recent=recent,
            traits=traits,
        )
        self._existing: Final = ExistingInstances(
            clock,
            cloud,
            claims=claims,
            recent=recent,
            traits=traits,
            has_attempted=self.executor.has_attempted,
        )

    def launch(self, requests: Sequence[LaunchRequest]) -> list[LaunchOutcome]:
        """Launch one instance for each request; return the outcomes in the same order.

        Raises:
            CloudProviderError: the cloud could not say what exists; nothing was sent.
        """
        by_token = {request.token: request for request in requests}
        outcomes = self._existing.outcomes(by_token)
        for token in [token for token in by_token if token not in outcomes]:
            reason = self.executor.wait_reason(token)
            if reason is not None:
                outcomes[token] = reason
        left = [token for token in by_token if token not in outcomes]
        for call in self.executor.unanswered_calls(left):
            for token, outcome in self.executor.repeat(call).items():
                # The repetition may be refused for what instances that are listed use up.
                is_shortage = isinstance(outcome, InsufficientCapacityError)
                if token in by_token and not (token in outcomes and is_shortage):
                    outcomes[token] = outcome
        new = [request for token, request in by_token.items() if token not in outcomes]
        by_class: dict[tuple[str, str], list[LaunchRequest]] = {}
        for request in new:
            metadata = request.node_class.metadata
            by_class.setdefault((metadata.name, metadata.resource_version), []).append(request)
        for members in by_class.values():
            outcomes |= self._launch_new(members)
        return [outcomes[request.token] for request in requests]

    def _launch_new(self, requests: Sequence[LaunchRequest]) -> dict[str, LaunchOutcome]:
        """Launch for claims of one NodeClass; return the outcomes by token."""
        try:
            jobs, refused = self._cloud.jobs(requests)
        except (CloudProviderError, BadInputError) as error:
            outcome = as_outcome(error, reason=self._traits.bad_input_reason)
            return dict.fromkeys((request.token for request in requests), outcome)
        outcomes: dict[str, LaunchOutcome] = dict(refused)
        for launched in self._run([partial(self.executor.execute, job) for job in jobs]):
            outcomes |= launched
        return outcomes

    def _run(
        self, jobs: Sequence[Callable[[], dict[str, LaunchOutcome]]]
    ) -> list[dict[str, LaunchOutcome]]:
        if len(jobs) <= 1:
            return [job() for job in jobs]
        with ThreadPoolExecutor(min(len(jobs), _CALLS_AT_ONCE), self._traits.log_name) as pool:
            return [future.result() for future in [pool.submit(job) for job in jobs]]
