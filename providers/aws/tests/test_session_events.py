"""Sessions of the provider have the event handlers of botocore for the services that it calls."""

from __future__ import annotations

import botocore.session
import pytest
from botocore.hooks import HierarchicalEmitter

from karpenter_provider_aws.service_models import OPERATIONS
from karpenter_provider_aws.session_events import UsedEvents

KINDS = (
    "after-call", "before-call", "before-endpoint-resolution", "before-parameter-build", "before-parse",
    "before-send", "before-sign", "choose-service-name", "choose-signer", "creating-client-class", "getattr",
    "needs-retry", "provide-client-params", "request-created", "response-received",
)  # fmt: skip
CREDENTIALS = {"sso": {"GetRoleCredentials"}, "sso-oidc": {"CreateToken"}, "sts": {"AssumeRole"}}


class NotedEmitter(HierarchicalEmitter):
    """Notes what is registered."""

    def __init__(self):
        super().__init__()
        self.names = []

    def _register_section(self, event_name, *handler, section):
        self.names.append(event_name)
        super()._register_section(event_name, *handler, section=section)


def handlers(emitter, event):
    return list(emitter._handlers.prefix_search(event))


@pytest.fixture(scope="module")
def emitters():
    """The one of the provider, and botocore's own."""
    both = UsedEvents(), NotedEmitter()
    for emitter in both:
        botocore.session.Session(event_hooks=emitter)
    return both


@pytest.mark.parametrize("service", sorted({**OPERATIONS, **CREDENTIALS, "signin": set()}))
def test_handlers_of_a_used_service_are_those_of_botocore(service, emitters):
    used, every = emitters
    operations = {**OPERATIONS, **CREDENTIALS}.get(service, set())
    events = [f"{kind}.{service}" for kind in KINDS]
    events += [f"{event}.{operation}" for event in events for operation in operations]
    events += [name for name in every.names if f".{service}." in f"{name}." and "docs" not in name]

    for event in events:
        assert handlers(used, event) == handlers(every, event)


def test_handlers_of_other_services_and_of_documentation_are_left_out(emitters):
    used, every = emitters

    for event in ("before-call.s3.PutObject", "docs.request-params.s3.PutObject.complete-section"):
        assert len(handlers(used, event)) < len(handlers(every, event))
