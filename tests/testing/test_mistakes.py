"""What must be said of a mistake is missed when it is not."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from karpenter_core.testing.mistakes import Mistake, Told

MISTAKE: Mistake[list[str]] = Mistake(
    name="no network",
    condition="NetworksReady",
    reason="NetworksNotFound",
    named=("spec.networks", "nobody"),
    found_by_itself="networks:List",
)
KIND = "ExampleNodeClass"
MESSAGE = "spec.networks selects nobody's network"


def told(*, status="False", reason="NetworksNotFound", message=MESSAGE, ready=MESSAGE, **said):
    conditions = {
        "NetworksReady": {"status": status, "reason": reason, "message": message},
        "Ready": {"status": "False", "message": ready},
    }
    line = f'{KIND} "default" is not ready: NetworksReady: {MESSAGE}'
    return Told(
        kind=KIND,
        conditions=conditions,
        of_objects=said.get("of_objects", line),
        of_the_cloud=said.get("of_the_cloud", "networks:List is not allowed"),
    )


def test_nothing_is_missed_when_all_is_said():
    assert MISTAKE.unsaid(told()) == []


@pytest.mark.parametrize(
    ("said", "missed"),
    [
        (told(status="Unknown"), "NetworksReady is ('Unknown', 'NetworksNotFound')"),
        (told(reason="Other"), "NetworksReady is ('False', 'Other')"),
        (told(message="spec.networks"), "NetworksReady does not name 'nobody'"),
        (told(ready="nobody"), "Ready does not name 'spec.networks'"),
        (told(of_the_cloud=""), "the cloud's check misses 'networks:List'"),
        (Told(kind=KIND, conditions={}, of_objects="", of_the_cloud=""), "Ready is None"),
        (
            told(of_objects=f'OtherNodeClass "default" is not ready: NetworksReady: {MESSAGE}'),
            "karpenter doctor names another condition",
        ),
    ],
)
def test_what_is_not_said_is_missed(said, missed):
    assert any(line.startswith(missed) for line in MISTAKE.unsaid(said))


def test_the_check_of_a_cloud_accuses_nobody_of_what_it_cannot_know():
    quiet = Mistake(name="", condition="NetworksReady", reason="NetworksNotFound", named=())
    assert quiet.unsaid(told(of_the_cloud="")) == []
    assert len(quiet.unsaid(told())) == 1


def test_trouble_lasts_as_long_as_its_context():
    @contextmanager
    def trouble(cloud):
        cloud.append("down")
        yield
        cloud.pop()

    cloud = []
    with Mistake(name="", condition="", reason="", named=(), trouble=trouble).made_in(cloud):
        assert cloud == ["down"]
    assert cloud == []
    with MISTAKE.made_in(cloud):
        assert cloud == []
