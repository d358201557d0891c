"""The clients know of botocore's descriptions what they use, as botocore itself reads it."""

from __future__ import annotations

import json

import botocore.session
import pytest
from botocore import loaders, xform_name
from botocore.model import ServiceModel

from karpenter_provider_aws.sdk import CloudClients
from karpenter_provider_aws.service_models import OPERATIONS, ModelFiles

CLIENTS = {"arc-zonal-shift": "zonal_shift"}


@pytest.fixture(scope="module")
def slim():
    """A loader of used parts."""
    loader = loaders.create_loader()
    loader.file_loader = ModelFiles()
    return loader


@pytest.fixture(scope="module")
def whole():
    """botocore's own loader."""
    return loaders.create_loader()


def service_model(loader, service):
    """Return the description of a service."""
    return ServiceModel(loader.load_service_model(service, "service-2"), service)


def resolved(shape, open_shapes=()):
    """Return a shape with all that it reaches; one inside of itself by its name."""
    if shape is None or shape.name in open_shapes:
        return shape and shape.name
    inner = (*open_shapes, shape.name)
    parts = {
        "members": {k: resolved(v, inner) for k, v in getattr(shape, "members", {}).items()},
        "item": resolved(getattr(shape, "member", None), inner),
        "key": resolved(getattr(shape, "key", None), inner),
        "value": resolved(getattr(shape, "value", None), inner),
    }
    return (shape.name, shape.type_name, dict(shape.serialization), dict(shape.metadata), parts)


@pytest.mark.parametrize(
    ("service", "operation"),
    [(service, name) for service, names in OPERATIONS.items() for name in sorted(names)],
)
def test_an_operation_is_described_as_by_botocore(service, operation, slim, whole):
    found, expected = (service_model(loader, service) for loader in (slim, whole))
    assert found.metadata == expected.metadata
    ours, theirs = found.operation_model(operation), expected.operation_model(operation)
    assert ours.http == theirs.http
    assert ours.auth_type == theirs.auth_type
    assert ours.idempotent_members == theirs.idempotent_members
    assert resolved(ours.input_shape) == resolved(theirs.input_shape)
    assert resolved(ours.output_shape) == resolved(theirs.output_shape)
    assert list(map(resolved, ours.error_shapes)) == list(map(resolved, theirs.error_shapes))


@pytest.mark.parametrize("service", sorted(OPERATIONS))
def test_a_client_has_the_used_operations_alone(service):
    clients = CloudClients(region="eu-west-1")
    client = getattr(clients, CLIENTS.get(service, service))

    assert set(client.meta.service_model.operation_names) == OPERATIONS[service]
    assert all(callable(getattr(client, xform_name(name))) for name in OPERATIONS[service])


@pytest.mark.parametrize("region", ["us-east-1", "cn-north-1", "us-gov-west-1", "eu-isoe-west-1"])
@pytest.mark.parametrize("service", [*sorted(OPERATIONS), "sts", "sso", "sso-oidc"])
def test_endpoints_are_those_of_botocore(service, region, slim):
    ours, theirs = botocore.session.Session(), botocore.session.Session()
    ours.register_component("data_loader", slim)
    endpoints = [
        session.create_client(
            service, region, aws_access_key_id="any", aws_secret_access_key="any"
        ).meta.endpoint_url
        for session in (ours, theirs)
    ]
    assert endpoints[0] == endpoints[1]


def test_most_of_the_description_of_ec2_is_left_out(slim, whole):
    sizes = [len(json.dumps(each.load_service_model("ec2", "service-2"))) for each in (slim, whole)]
    assert sizes[0] < sizes[1] / 5


def test_descriptions_of_other_services_stay_whole(slim, whole):
    assert slim.load_service_model("sts", "service-2") == whole.load_service_model(
        "sts", "service-2"
    )


def test_a_missing_model_file_is_no_error(tmp_path):
    assert ModelFiles().load_file(str(tmp_path / "ec2" / "2016-11-15" / "service-2")) is None
