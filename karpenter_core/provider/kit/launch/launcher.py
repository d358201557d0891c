"""Launches one instance for each NodeClaim.

The core passes a claim again after a crash or an error, and there must never be two instances for
it. So existing instances are found first; then calls without an answer are repeated; the remaining
claims are launched.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, final

import structlog

from karpenter_core.errors import (
    BadInputError,
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
)
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.kit.launch.cloud import Answer, Call, Described
from karpenter_core.provider.kit.launch.executor import CallExecutor, OpenCall
from karpenter_core.provider.kit.launch.existing_instances import ExistingInstances, as_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.launch.cloud import CloudTraits, LaunchCloud
    from karpenter_core.provider.kit.launch.instance_claims import InstanceClaims
    from karpenter_core.provider.kit.recent_launches import RecentLaunches

__all__ = ["ClaimLauncher"]


@final
class ClaimLauncher(Generic[Described, Call, Answer]):
    """Launches instances in a cloud; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        cloud: LaunchCloud[Described, Call, Answer],
        *,
        claims: InstanceClaims[Described, Call],
        recent: RecentLaunches,
        traits: CloudTraits,
    ) -> None:
        """`recent` must remember launches for `traits.shown_within` at least."""
        self._clock: Final = clock
        self._cloud: Final = cloud
        self._traits: Final = traits
        self._log: FilteringBoundLogger = structlog.get_logger(traits.log_name)
        self._began: tuple[datetime, float] | None = None
        """Time of this process's first launch, by the wall clock and by the monotonic one."""
        self.executor: Final = CallExecutor(
            clock, cloud, claims=claims, recent=recent, traits=traits
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
        # Read first: what another thread's repetition brings meanwhile is found when this one's is made.
        open_calls = self.executor.unanswered_calls(by_token)
        listed_at = self._clock.monotonic()
        outcomes = self._existing.outcomes(by_token)
        for token in by_token:
            reason = self.executor.wait_reason(token)
            if reason is not None:
                outcomes.setdefault(token, reason)
        for open_call in open_calls:
            outcomes |= self._open_call_outcomes(open_call, by_token, outcomes, listed_at=listed_at)
        for token, request in by_token.items():
            if token not in outcomes and self._may_be_unseen(request, listed_at=listed_at):
                outcomes[token] = CloudProviderError(
                    "another process may have launched this NodeClaim, and its instance is looked for"
                )
        outcomes = {token: _as_existing(outcome) for token, outcome in outcomes.items()}
        new = [request for token, request in by_token.items() if token not in outcomes]
        by_class: dict[tuple[str, str], list[LaunchRequest]] = {}
        for request in new:
            metadata = request.node_class.metadata
            by_class.setdefault((metadata.name, metadata.resource_version), []).append(request)
        for members in by_class.values():
            outcomes |= self._launch_new(members)
        return [outcomes[request.token] for request in requests]

    def _open_call_outcomes(
        self,
        open_call: OpenCall[Call],
        by_token: Mapping[str, LaunchRequest],
        found: Mapping[str, LaunchOutcome],
        *,
        listed_at: float,
    ) -> dict[str, LaunchOutcome]:
        """Return the outcomes that a call without an answer adds to those of the listing."""
        if not self._traits.repeats_calls:
            looked_up = self.executor.look_up(open_call, found, listed_at=listed_at)
            return {token: looked_up[token] for token in by_token.keys() & looked_up.keys()}
        if all(token in found for token in open_call.call.requests):
            return {}
        repeated = self.executor.repeat(open_call, listed_at=listed_at)
        # While the listing shows a part of the call, it may assign instances wrongly: the answer is
        # waited for. But what is listed is more than the call's last word.
        return {
            token: repeated[token]
            for token in by_token.keys() & repeated.keys()
            if token not in found
            or not isinstance(repeated[token], InsufficientCapacityError | LaunchFailedError)
        }

    def _may_be_unseen(self, request: LaunchRequest, *, listed_at: float) -> bool:
        """Whether another process may have launched a claim that the listing does not show yet.

        Without tokens nothing else tells: claims that are older than this process's first launch wait
        until a listing would show what was launched before it.
        """
        created = request.node_claim.metadata.creation_timestamp
        if self._traits.repeats_calls or created is None:
            return False
        if self._began is None:
            self._began = self._clock.now(), listed_at
        began_at, began = self._began
        is_older = created <= began_at
        return is_older and listed_at - began < self._traits.shown_within.total_seconds()

    def _launch_new(self, requests: Sequence[LaunchRequest]) -> dict[str, LaunchOutcome]:
        """Launch for claims of one NodeClass; return the outcomes by token."""
        tokens = [request.token for request in requests]
        try:
            jobs, refused = self._cloud.jobs(requests)
        except (CloudProviderError, BadInputError) as error:
            outcome = as_outcome(error, reason=self._traits.bad_input_reason)
            return dict.fromkeys(tokens, outcome)
        except Exception as error:
            self._log.exception("a launch could not be planned")
            outcome = CloudProviderError(f"the launch could not be planned: {error!r}")
            outcome.__cause__ = error
            return dict.fromkeys(tokens, outcome)
        outcomes: dict[str, LaunchOutcome] = dict(refused)
        for launched in self._run([partial(self.executor.execute, job) for job in jobs]):
            outcomes |= launched
        forgotten = CloudProviderError(f"no launch was planned in {self._traits.name}")
        return {token: outcomes.get(token, forgotten) for token in tokens}

    def _run(
        self, jobs: Sequence[Callable[[], dict[str, LaunchOutcome]]]
    ) -> list[dict[str, LaunchOutcome]]:
        if len(jobs) <= 1:
            return [job() for job in jobs]
        width = min(len(jobs), self._traits.calls_at_once)
        with ThreadPoolExecutor(width, self._traits.log_name) as pool:
            return [future.result() for future in [pool.submit(job) for job in jobs]]


def _as_existing(outcome: LaunchOutcome) -> LaunchOutcome:
    """Return the outcome of a claim for which an earlier call may have launched its instance."""
    return replace(outcome, existed=True) if isinstance(outcome, LaunchedInstance) else outcome
