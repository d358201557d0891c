"""Tests reading of long-running operations."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.arm.client import ArmAnswer
from karpenter_provider_azure.arm.errors import ArmNotFoundError
from karpenter_provider_azure.arm.operations import (
    OperationStatus,
    operation_url,
    poll_operation,
    state_of_answer,
    state_of_poll,
    state_of_resource,
)


def answer(status=200, body=None, **headers):
    return ArmAnswer(
        status=status,
        body=body or {},
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def poll(client, server):
    return poll_operation(client, f"{server.url}/operations/1", action="virtualMachines:poll")


def test_azure_async_operation_goes_before_location():
    both = answer(azure_asyncoperation="https://a/", location="https://b/")
    assert operation_url(both) == "https://a/"
    assert operation_url(answer(location="https://b/")) == "https://b/"
    assert not operation_url(answer())


def test_a_failed_operation_has_its_error_though_the_status_is_200(client, server):
    """# case 101"""
    error = {"code": "ZonalAllocationFailed", "message": "no capacity in zone 1"}
    server.reply(200, {"status": "Failed", "error": error})
    state = poll(client, server)
    assert state.status is OperationStatus.FAILED
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
    state = state_of_poll(answer(body={"status": "canceled"}))
    assert state.status is OperationStatus.CANCELED
    assert "names no error" in str(state.error)


def test_a_forgotten_operation_is_no_state(client, server):
    server.reply(404, {"error": {"code": "NotFound", "message": "no operation"}})
    with pytest.raises(ArmNotFoundError):
        poll(client, server)


def test_a_poll_without_an_answer_is_no_state(client, server):
    server.cut()
    with pytest.raises(CloudProviderError):
        poll(client, server)


def test_the_first_answer_tells_whether_the_operation_is_open():
    created = {"properties": {"provisioningState": "Creating"}}
    done = {"properties": {"provisioningState": "Succeeded"}}
    assert not state_of_answer(answer(201, created, azure_asyncoperation="https://a/")).is_done
    assert state_of_answer(answer(200, done, azure_asyncoperation="https://a/")).is_done
    assert not state_of_answer(answer(202, location="https://a/")).is_done
    assert state_of_answer(answer(204)).is_done
    assert not state_of_answer(answer(201, created)).is_done


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"properties": {"provisioningState": "Deleting"}}, OperationStatus.IN_PROGRESS),
        ({"properties": {"provisioningState": "Failed"}}, OperationStatus.FAILED),
        ({"properties": {}}, OperationStatus.SUCCEEDED),
        ({}, OperationStatus.SUCCEEDED),
    ],
)
def test_a_resource_tells_its_state(body, status):
    assert state_of_resource(body).status is status
