"""Simulated clouds share time, a log of calls, faults and throttling."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest

from karpenter_core.provider.kit.simulated.calls import CallLog, LoggedCall
from karpenter_core.provider.kit.simulated.cloud_time import CloudTime
from karpenter_core.provider.kit.simulated.faults import (
    CloudError,
    CloudFault,
    CloudFaultKind,
    CloudFaults,
)
from karpenter_core.provider.kit.simulated.rates import CallRates, SimulatedCallRate

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Call:
    service: str
    action: str
    parameters: dict[str, object] = field(default_factory=dict)

    @property
    def name(self):
        return f"{self.service}:{self.action}"


def fault(action, **more):
    return CloudFault(
        kind=CloudFaultKind.REFUSED, action=action, error=CloudError("No", "no"), **more
    )


def test_simulated_time_passes_as_configured_until_a_reset():
    time = CloudTime(lambda: NOON)

    time.advance(90)
    later = time()
    time.reset()

    assert (later, time()) == (NOON + timedelta(seconds=90), NOON)


@pytest.mark.parametrize(
    ("pattern", "struck"),
    [("Run*", ["Run"]), ("ecs:*", ["Run", "Stop"]), ("vpc:*", []), ("*", ["Run", "Stop"])],
)
def test_a_fault_matches_actions_with_or_without_their_service(pattern, struck):
    faults = CloudFaults()
    faults.add(fault(pattern))

    assert [name for name in ("Run", "Stop") if faults.strike(Call("ecs", name))] == struck


def test_a_fault_applies_as_often_as_configured_and_counts():
    faults = CloudFaults()
    twice = faults.add(fault("Run", times=2))

    hits = [faults.strike(Call("ecs", "Run")) is twice for _ in range(3)]

    assert hits == [True, True, False]
    assert twice.struck == 2


def test_a_fault_matches_calls_by_parameters():
    faults = CloudFaults()
    faults.add(fault("Run", where=lambda parameters: parameters.get("Type") == "large"))

    assert faults.strike(Call("ecs", "Run", {"Type": "large"}))
    assert not faults.strike(Call("ecs", "Run", {"Type": "small"}))


def test_a_fault_is_over_when_its_context_is():
    faults = CloudFaults()

    with faults.add(fault("Run")):
        during = faults.strike(Call("ecs", "Run"))
    after = faults.strike(Call("ecs", "Run"))

    assert during is not None
    assert after is None


def test_a_call_hanging_on_a_fault_returns_when_it_ends():
    faults = CloudFaults()
    silent = faults.add(CloudFault(kind=CloudFaultKind.SILENT, action="*"))
    hanging = Thread(target=faults.hang, args=(silent,), kwargs={"seconds": 30}, daemon=True)
    hanging.start()

    silent.end()
    hanging.join(timeout=10)

    assert not hanging.is_alive()


def test_a_bucket_fills_again_and_holds_no_more_than_it_does():
    time = CloudTime(lambda: NOON)
    rates = CallRates(time)
    rates.set({"ecs:Run*": SimulatedCallRate(bucket=2, refill=1)})

    def taken(count):
        return sum(rates.take("ecs:RunInstances") for _ in range(count))

    first = taken(3)
    time.advance(1)
    second = taken(3)
    time.advance(1000)

    assert (first, second, taken(5)) == (2, 1, 2)
    assert all(rates.take("ecs:Stop") for _ in range(9))


def test_a_named_rate_outranks_a_pattern_and_each_name_has_its_bucket():
    rates = CallRates(lambda: NOON)
    rates.set(
        {
            "ecs:*": SimulatedCallRate(bucket=1, refill=0),
            "ecs:Run": SimulatedCallRate(bucket=2, refill=0),
        }
    )

    assert [rates.take("ecs:Run") for _ in range(3)] == [True, True, False]
    assert [rates.take("ecs:Stop") for _ in range(2)] == [True, False]
    assert rates.take("ecs:Other", 5, by_pattern=False)


def test_calls_are_selected_by_action_and_outcome():
    log = CallLog()
    for outcome, dry in (("ok", "true"), ("Throttling", None), ("ok", "false")):
        log.add(
            LoggedCall(
                service="ecs",
                action="Run",
                at=NOON,
                parameters={"DryRun": dry},
                outcome=outcome,
            )
        )

    assert log.count("Run") == 3
    assert [call.dry_run for call in log.of("Run", outcome="ok")] == [True, False]
    log.clear()
    assert log.all == ()
