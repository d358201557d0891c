"""Tests reading of long-running operations."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.arm.client import ArmAnswer
from karpenter_provider_azure.arm.errors import ArmNotFoundError
from karpenter_provider_azure.arm.operations import (
    operation_url,
    state_of_poll,
)


def answer(status=200, body=None, **headers):
    return ArmAnswer(
        status=status,
        body=body or {},
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def poll(client, server):
    return state_of_poll(client.follow(f"{server.url}/operations/1", action="operations:get"))


def test_azure_async_operation_precedes_location():
    both = answer(azure_asyncoperation="https://a/", location="https://b/")
    assert operation_url(both) == "https://a/"
    assert operation_url(answer(location="https://b/")) == "https://b/"
    assert not operation_url(answer())


def test_a_failed_operation_has_its_error_though_the_status_is_200(client, server):
    """# case 101"""
    error = {"code": "ZonalAllocationFailed", "message": "no capacity in zone 1"}
    server.reply(200, {"status": "Failed", "error": error})
    state = poll(client, server)
    assert state.is_done
    assert (state.error.code, state.error.status) == ("ZonalAllocationFailed", 200)


def test_an_open_operation_says_when_to_poll_again(client, server):
    server.reply(200, {"status": "InProgress"}, {"Retry-After": "4"})
    state = poll(client, server)
    assert not state.is_done
    assert state.retry_after == timedelta(seconds=4)


@pytest.mark.parametrize("status", ["Running", "Updating", "SomethingNew"])
def test_an_unknown_status_is_one_in_progress(status):
    assert not state_of_poll(answer(body={"status": status})).is_done


@pytest.mark.parametrize(("status", "is_done"), [(202, False), (200, True), (204, True)])
def test_the_status_of_a_location_decides(status, is_done):
    assert state_of_poll(answer(status, {"name": "aks-x"})).is_done is is_done


def test_a_failed_operation_without_an_error_is_failed():
    state = state_of_poll(answer(body={"status": "Canceled"}))
    assert state.is_done
    assert str(state.error) == (
        "Canceled: the operation ended with the status Canceled and names no error"
    )


def test_a_forgotten_operation_is_no_state(client, server):
    server.reply(404, {"error": {"code": "NotFound", "message": "no operation"}})
    with pytest.raises(ArmNotFoundError):
        poll(client, server)


def test_a_poll_without_an_answer_is_no_state(client, server):
    server.cut()
    with pytest.raises(CloudProviderError):
        poll(client, server)
