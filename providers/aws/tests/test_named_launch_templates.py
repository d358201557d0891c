"""Groups name a version of a launch template by its number, as the latest one, or not at all."""

from __future__ import annotations

import pytest

from karpenter_provider_aws.conversion.launch_templates import find_launch_template


def version(number, *, default=False, template="lt-1"):
    return {
        "LaunchTemplateId": template,
        "LaunchTemplateName": f"name-of-{template}",
        "VersionNumber": number,
        "DefaultVersion": default,
        "LaunchTemplateData": {"ImageId": f"ami-{template}-{number}"},
    }


DOCUMENTS = [
    {
        "LaunchTemplateVersions": [
            version(1),
            version(10),
            version(2, default=True),
            version(3, template="lt-2"),
        ]
    }
]


@pytest.mark.parametrize(
    ("reference", "image"),
    [
        ({"LaunchTemplateId": "lt-1", "Version": "1"}, "ami-lt-1-1"),
        ({"LaunchTemplateId": "lt-1", "Version": "$Latest"}, "ami-lt-1-10"),
        ({"LaunchTemplateId": "lt-1", "Version": "$Default"}, "ami-lt-1-2"),
        ({"LaunchTemplateId": "lt-1"}, "ami-lt-1-2"),
        ({"LaunchTemplateName": "name-of-lt-1"}, "ami-lt-1-2"),
        ({"LaunchTemplateName": "name-of-lt-2", "Version": "3"}, "ami-lt-2-3"),
    ],
)
def test_a_reference_finds_its_version(reference, image):
    template = find_launch_template(reference, DOCUMENTS)
    assert template is not None
    assert template.data["ImageId"] == image


@pytest.mark.parametrize(
    "reference",
    [
        {"LaunchTemplateId": "lt-1", "Version": "4"},
        {"LaunchTemplateId": "lt-2"},
        {"LaunchTemplateId": "lt-3", "Version": "$Latest"},
        {},
    ],
)
def test_a_version_that_no_document_has_is_not_found(reference):
    """lt-2 has no default version here: another version must not pass for it."""
    assert find_launch_template(reference, DOCUMENTS) is None


def test_a_version_without_a_number_is_older_than_any():
    """The latest is the first one here."""
    numberless = {**version(0), "LaunchTemplateData": {"ImageId": "ami-numberless"}}
    del numberless["VersionNumber"]
    documents = [{"LaunchTemplateVersions": [version(1), numberless]}]
    latest = {"LaunchTemplateId": "lt-1", "Version": "$Latest"}
    template = find_launch_template(latest, documents)
    assert template is not None
    assert template.data["ImageId"] == "ami-lt-1-1"
