"""The token for images of other tenants is kept until shortly before it expires."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from time import sleep

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.launch.image_tokens import HEADER, ImageTokens
from providers.azure.tests.launch.launch_world import NOW, SetClock


def tokens(*answers):
    clock, left = SetClock(), list(answers)
    return clock, left, ImageTokens(clock, lambda: left.pop(0))


def at(**amount):
    return (NOW + timedelta(**amount)).isoformat()


def test_a_token_is_renewed_five_minutes_before_it_expires():
    clock, left, own = tokens(
        {"Token": "first", "ExpiresOn": at(hours=1), "RefreshOn": "0001-01-01T00:00:00Z"},
        {"access_token": "second", "expires_on": (NOW + timedelta(hours=3)).timestamp()},
    )
    assert own.headers() == {HEADER: "Bearer first"}
    clock.forward(minutes=54)
    assert own.headers() == {HEADER: "Bearer first"}
    clock.forward(minutes=2)
    assert own.headers() == {HEADER: "Bearer second"}
    assert left == []


def test_a_token_is_renewed_at_the_time_that_its_service_sets():
    clock, _, own = tokens(
        {"Token": "first", "ExpiresOn": at(hours=1), "RefreshOn": at(minutes=10)},
        {"Token": "second", "ExpiresOn": at(hours=1)},
    )
    own.headers()
    clock.forward(minutes=11)
    assert own.headers() == {HEADER: "Bearer second"}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"Token": "t"},
        {"Token": "", "ExpiresOn": at(hours=1)},
        {"access_token": "", "expires_on": at(hours=1)},
        {"Token": "t", "ExpiresOn": "soon"},
    ],
)
def test_an_answer_without_a_token_is_an_error(answer):
    _, _, own = tokens(answer)
    with pytest.raises(CloudProviderError, match="SIG_ACCESS_TOKEN_SERVER_URL"):
        own.headers()


def test_waiting_launches_share_one_request_to_an_unresponsive_service():
    reads = []
    everybody = Barrier(8)

    def read():
        reads.append(1)
        sleep(0.3)
        raise CloudProviderError("no answer")

    own = ImageTokens(SetClock(), read)

    def ask(_):
        everybody.wait()
        with pytest.raises(CloudProviderError, match="no answer"):
            own.headers()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    assert len(reads) == 1


def test_a_token_that_cannot_be_renewed_is_used_until_it_expires():
    clock, left, own = tokens({"Token": "first", "ExpiresOn": at(hours=1)}, {}, {})
    own.headers()
    clock.forward(minutes=58)
    assert own.headers() == {HEADER: "Bearer first"}
    assert len(left) == 1
    clock.forward(minutes=2)
    with pytest.raises(CloudProviderError):
        own.headers()
