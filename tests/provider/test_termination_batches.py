"""Batches of terminations of which a cloud refuses some instances."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.kit.termination_batches import terminate_batch
from tests.properties import with_examples

IDS = [f"vm-{number}" for number in range(16)]


class Cloud:
    """Refuses every call with a protected instance, and names one of them if it `names`."""

    def __init__(self, *protected, names=False):
        self.protected, self.names = protected, names
        self.calls = []
        self.error = None

    def send(self, instance_ids):
        self.calls.append(list(instance_ids))
        if self.error is not None:
            raise self.error
        results = [name for name in instance_ids if name in self.protected]
        if results:
            raise CloudProviderError(f"{results[0]} is protected" if self.names else "protected")

    def terminate(self, instance_ids, *, max_refusals=100):
        return terminate_batch(
            instance_ids,
            self.send,
            read_refusal=lambda error: None if isinstance(error, AuthError) else str(error),
            message_of=str,
            max_refusals=max_refusals,
        )


def test_a_batch_without_refusals_is_one_call():
    cloud = Cloud()
    assert cloud.terminate(IDS).started == IDS
    assert cloud.calls == [IDS]


def test_an_empty_batch_is_no_call():
    cloud = Cloud()
    assert cloud.terminate([]).started == []
    assert not cloud.calls


def test_a_named_instance_is_left_out_of_the_next_call():
    """And not the ones whose names begin with its name."""
    cloud = Cloud("vm-1", names=True)
    result = cloud.terminate(IDS)
    assert list(result.refused) == ["vm-1"]
    assert len(cloud.calls) == 2
    assert "vm-10" in result.started


def test_an_instance_that_is_not_named_is_isolated_by_halving():
    cloud = Cloud("vm-5")
    result = cloud.terminate(IDS)
    assert result.refused == {"vm-5": "protected"}
    assert sorted(result.started) == sorted(set(IDS) - {"vm-5"})
    assert len(cloud.calls) == 9


def test_a_failure_that_is_about_everybody_ends_the_batch():
    cloud = Cloud()
    cloud.error = AuthError("denied", action="delete")
    result = cloud.terminate(IDS)
    assert result.failed == dict.fromkeys(IDS, cloud.error)
    assert len(cloud.calls) == 1


def test_after_too_many_refusals_in_a_row_the_rest_is_deferred():
    cloud = Cloud(*IDS)
    result = cloud.terminate(IDS, max_refusals=3)
    assert len(cloud.calls) == 3
    assert result.deferred.keys() == set(IDS)
    assert {str(error) for error in result.deferred.values()} == {"protected"}


@given(protected=st.sets(st.sampled_from(IDS)), names=st.booleans())
@with_examples(100)
def test_every_instance_is_started_or_refused(protected, names):
    result = Cloud(*protected, names=names).terminate(IDS)
    assert sorted([*result.started, *result.refused]) == sorted(IDS)
    assert set(result.refused) == protected


@pytest.mark.parametrize("text", ["instance/vm-1 in use", "vm-1, vm-2", "(vm-1)"])
def test_ids_are_parsed_from_messages(text):
    class Naming(Cloud):
        def send(self, instance_ids):
            if "vm-1" in instance_ids:
                raise CloudProviderError(text)

    assert "vm-1" in Naming().terminate(IDS[:4]).refused
