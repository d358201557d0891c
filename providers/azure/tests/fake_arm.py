"""Azure Resource Manager as a table of answers, a clock that tests move, and a cluster's objects."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.kit.calls.failures import UncertainCallError
from karpenter_provider_azure.arm.errors import ArmError, ArmNotFoundError
from providers.azure.tests.arm.values import SUBSCRIPTION

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class HandClock:
    def __init__(self):
        self.passed = timedelta()

    def now(self):
        return NOON + self.passed

    def monotonic(self):
        return self.passed.total_seconds()

    def forward(self, **amount):
        self.passed += timedelta(**amount)


class FakeArm:
    """Answers reads by path; what is not in the table is not found."""

    subscription_id = SUBSCRIPTION
    location = "westus2"

    def __init__(self):
        self.answers = {}
        self.calls = []
        self._lock = threading.Lock()

    def put(self, path, answer):
        self.answers[path.lower()] = answer

    def get(self, path, *, api_version, action, query=None):
        return self._answer(path, action)

    def list_all(self, path, *, api_version, action, query=None):
        return self._answer(path, action)

    def count(self, action):
        return self.calls.count(action)

    def _answer(self, path, action):
        with self._lock:
            self.calls.append(action)
        answer = self.answers.get(path.lower(), not_found())
        if callable(answer):
            answer = answer()
        if isinstance(answer, Exception):
            raise answer
        return answer


class FakeObjects:
    """Objects of a cluster by `resource.group`; what is not in the table does not exist."""

    def __init__(self):
        self.objects = {}
        self.problem = None
        self.reads = []

    def __call__(self, read):
        self.reads.append(read)
        if self.problem is not None:
            raise CloudProviderError(f"{read} could not be read: {self.problem}")
        return tuple(self.objects.get(f"{read.resource}.{read.group}".rstrip("."), ()))


def not_found():
    return ArmNotFoundError("it does not exist", code="ResourceNotFound", status=404)


def forbidden(action="Microsoft.Network/virtualNetworks/subnets/read"):
    error = AuthError(
        f"subnets:get: AuthorizationFailed: no authorization to perform action '{action}'",
        action="subnets:get",
    )
    error.__cause__ = ArmError("no authorization", code="AuthorizationFailed", status=403)
    return error


def unanswered():
    return UncertainCallError("subnets:get: 500: internal error (it may have been carried out)")
