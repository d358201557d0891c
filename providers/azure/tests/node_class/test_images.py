"""Versions of Kubernetes and images of NodeClasses are resolved, kept and moved."""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.node_class.versions import choose_version
from providers.azure.tests.fake_arm import forbidden, unanswered
from providers.azure.tests.node_class.worlds import (
    NODE_IMAGES,
    Process,
    definition_path,
    node_class_of,
    said,
    short_ids,
)

GEN2, GEN1, ARM = "2204gen2containerd", "2204containerd", "2204gen2arm64containerd"


@pytest.fixture
def process():
    return Process()


def all_at(version):
    return [f"{name} {version}" for name in (GEN2, GEN1, ARM)]


def test_a_new_node_class_gets_version_and_newest_images(process):
    found = process.resolve(node_class_of())

    assert found.status.kubernetes_version == "1.33.2"
    assert short_ids(found) == all_at("1.0.0")
    assert said(found, "KubernetesVersionReady")[0] == "True"
    assert said(found, "ImagesReady")[0] == "True"
    assert said(found, "Ready")[0] == "True"


def test_images_stay_outside_the_window_and_move_inside(process):  # case 63
    process.set_window(1, 2)
    found = process.resolve(node_class_of())
    process.publish("2.0.0")
    process.restart()

    found = process.resolve(found)
    assert short_ids(found) == all_at("1.0.0")
    process.later(minutes=90)
    assert short_ids(process.resolve(found)) == all_at("2.0.0")


def test_images_move_at_once_without_a_window(process):  # case 64
    found = process.resolve(node_class_of())
    process.publish("2.0.0")
    process.restart()

    assert short_ids(process.resolve(found)) == all_at("2.0.0")


def test_a_window_that_cannot_be_read_keeps_images_and_is_shown(process):  # case 64
    found = process.resolve(node_class_of())
    process.set_window(-1, None)
    process.publish("2.0.0")
    process.restart()

    found = process.resolve(found)

    assert short_ids(found) == all_at("1.0.0")
    status, _, message = said(found, "ImagesReady")
    assert status == "True"
    assert "images are not updated: ConfigMap" in message
    assert "aksManagedNodeOSUpgradeSchedule-end" in message


def test_a_window_that_was_never_read_changes_nothing(process):
    found = process.resolve(node_class_of())
    process.objects.problem = "forbidden"
    process.publish("2.0.0")
    process.restart()

    after = process.resolve(found)

    assert short_ids(after) == all_at("1.0.0")
    assert said(after, "ImagesReady") == said(found, "ImagesReady")
    new = process.resolve(node_class_of())
    assert short_ids(new) == all_at("2.0.0"), "a new NodeClass needs no window"


def test_another_family_replaces_images_outside_the_window(process):  # case 65
    process.set_window(1, 2)
    found = process.resolve(node_class_of())

    changed = found.model_copy(update={"spec": node_class_of(imageFamily="AzureLinux").spec})

    assert short_ids(process.resolve(changed)) == ["V3gen2 1.0.0"]


def test_a_new_definition_joins_at_its_newest_version_outside_the_window(process):
    process.set_window(1, 2)
    process.arm.put(definition_path(GEN1), [])
    found = process.resolve(node_class_of())
    assert short_ids(found) == [f"{GEN2} 1.0.0", f"{ARM} 1.0.0"]
    process.publish("2.0.0")
    process.restart()

    assert short_ids(process.resolve(found)) == [
        f"{GEN2} 1.0.0",
        f"{GEN1} 2.0.0",
        f"{ARM} 1.0.0",
    ]


def test_an_upgrade_of_kubernetes_moves_images_in_the_same_pass(process):  # case 66
    process.upgrade("v1.30.0")
    process.set_window(1, 2)
    found = process.resolve(node_class_of())
    process.publish("2.0.0")
    process.upgrade("v1.31.0")

    found = process.resolve(found)

    assert found.status.kubernetes_version == "1.31.0"
    assert short_ids(found) == all_at("2.0.0")
    assert said(found, "ImagesReady")[0] == "True"


@pytest.mark.parametrize("error", [unanswered(), forbidden("Microsoft.Compute/x/read")])
def test_an_upgrade_whose_images_are_not_found_yet_is_shown_until_they_are(process, error):
    process.upgrade("v1.30.0")  # case 66
    process.set_window(1, 2)
    found = process.resolve(node_class_of())
    process.publish("2.0.0")
    process.arm.put(definition_path(GEN2), error)
    process.upgrade("v1.31.0")

    for _ in range(3):
        found = process.resolve(found)
        assert found.status.kubernetes_version == "1.31.0"
        assert said(found, "ImagesReady")[:2] == ("False", "KubernetesUpgrade")
        assert str(error) in said(found, "ImagesReady")[2]
        assert short_ids(found) == all_at("1.0.0")
        assert said(found, "Ready")[0] == "False"
    process.publish("2.0.0")
    found = process.resolve(found)
    assert said(found, "ImagesReady")[0] == "True"
    assert short_ids(found) == all_at("2.0.0")


def test_a_lower_version_of_the_api_server_is_no_downgrade(process):  # case 66
    process.upgrade("v1.31.0")
    found = process.resolve(node_class_of())
    process.upgrade("v1.30.0")

    found = process.resolve(found)

    assert found.status.kubernetes_version == "1.31.0"
    status, _, message = said(found, "KubernetesVersionReady")
    assert status == "True"
    assert "nodes keep 1.31.0, though the API server has 1.30.0" in message


@pytest.mark.parametrize("version", ["", "latest"])
def test_an_unknown_version_is_not_a_version(version):
    process = Process(version="")
    process.upgrade(version)

    found = process.resolve(node_class_of())

    assert said(found, "KubernetesVersionReady")[0] == "Unknown"
    assert said(found, "ImagesReady")[0] == "Unknown"
    assert found.status.kubernetes_version == ""
    process.upgrade("v1.33.2")
    found = process.resolve(found)
    process.upgrade(version)
    found = process.resolve(found)
    assert found.status.kubernetes_version == "1.33.2"
    assert said(found, "Ready")[0] == "True"


@pytest.mark.parametrize(
    ("current", "served", "version", "is_upgrade"),
    [
        ("", "v1.31.0", "1.31.0", False),
        ("1.31.0", "1.31.0", "1.31.0", False),
        ("1.9.9", "v1.10.0", "1.10.0", True),
        ("1.31.0", "v1.31.1-aks.1", "1.31.1-aks.1", True),
        ("broken", "v1.31.0", "1.31.0", True),
    ],
)
def test_versions_compare_as_numbers(current, served, version, is_upgrade):
    choice = choose_version(current, served)

    assert (choice.version, choice.is_upgrade, choice.remark) == (version, is_upgrade, "")


def test_fips_needs_shared_galleries():  # case 59
    process = Process()
    found = process.resolve(node_class_of())

    changed = found.model_copy(update={"spec": node_class_of(fipsMode="FIPS").spec})
    found = process.resolve(changed)

    status, reason, message = said(found, "ImagesReady")
    assert (status, reason) == ("False", "SIGRequiredForFIPS")
    assert message.startswith('spec.fipsMode "FIPS"')
    assert "use-sig" in message
    assert found.status.images == ()


def test_fips_images_come_from_shared_galleries():  # case 59
    process = Process(use_sig=True, sig_subscription_id="of-aks")
    listed = [
        {"os": "AKSUbuntu", "sku": sku, "version": "202410.15.0"}
        for sku in ("2004gen2fipscontainerd", "2004fipscontainerd", "2204gen2fipsTLcontainerd")
    ]
    process.arm.put(NODE_IMAGES, listed)

    assert short_ids(process.resolve(node_class_of(fipsMode="FIPS"))) == [
        "2004gen2fipscontainerd 202410.15.0",
        "2004fipscontainerd 202410.15.0",
    ]
    trusted = node_class_of(fipsMode="FIPS", security={"trustedLaunch": {"vtpm": True}})
    assert short_ids(process.resolve(trusted)) == ["2204gen2fipsTLcontainerd 202410.15.0"]


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ({"imageFamily": "Ubuntu2604"}, 'spec.imageFamily "Ubuntu2604": unknown family'),
        ({"imageFamily": "Ubuntu2404"}, "have no version of 2404gen2containerd, 2404containerd"),
    ],
)
def test_an_unknown_family_or_version_is_named_and_clears_images(process, spec, part):
    found = process.resolve(node_class_of())
    process.arm.put(definition_path("2404gen2containerd"), [])

    found = process.resolve(found.model_copy(update={"spec": node_class_of(**spec).spec}))

    status, reason, message = said(found, "ImagesReady")
    assert (status, reason) == ("False", "ImagesNotFound")
    assert part in message
    assert found.status.images == ()


def test_a_variant_that_aks_does_not_publish_is_named():
    process = Process(use_sig=True)
    spec = {
        "imageFamily": "AzureLinux",
        "fipsMode": "FIPS",
        "security": {"trustedLaunch": {"secureBoot": True}},
    }

    _, reason, message = said(process.resolve(node_class_of(**spec)), "ImagesReady")

    assert reason == "ImagesNotFound"
    assert message.endswith("AKS has no image of AzureLinux3 with FIPS and Trusted Launch")


def test_refused_calls_are_shown_and_keep_images_also_when_they_end(process):
    process.set_window(1, 2)
    found = process.resolve(node_class_of())
    process.publish("2.0.0")
    process.arm.put(definition_path(GEN2), forbidden("Microsoft.Compute/x/read"))
    process.restart()

    found = process.resolve(found)
    assert said(found, "ImagesReady")[:2] == ("False", "AuthorizationFailed")
    assert "Microsoft.Compute/x/read" in said(found, "ImagesReady")[2]
    assert short_ids(found) == all_at("1.0.0")
    process.publish("2.0.0")
    found = process.resolve(found)
    assert said(found, "ImagesReady")[0] == "True"
    assert short_ids(found) == all_at("1.0.0"), "the window is closed"


def test_unanswered_calls_change_nothing(process):
    found = process.resolve(node_class_of())
    process.arm.put(definition_path(GEN2), unanswered())
    process.restart()

    after = process.resolve(found)

    assert said(after, "ImagesReady") == said(found, "ImagesReady")
    assert said(after, "Ready")[0] == "True"


def test_nothing_is_resolved_while_azure_answers_nothing(process):
    process.arm.answers.clear()
    process.arm.get = process.arm.list_all = lambda *_, **__: (_ for _ in ()).throw(unanswered())

    with pytest.raises(CloudProviderError, match="500"):
        process.answer(node_class_of())


@pytest.mark.parametrize("is_open", [False, True])
def test_an_image_that_the_gallery_stops_naming_stays(process, is_open):
    """Its nodes run, and there is nothing to replace them with."""
    process.set_window(-1, 1) if is_open else process.set_window(1, 2)
    found = process.resolve(node_class_of())
    process.arm.put(definition_path(ARM), [])
    process.restart()

    assert short_ids(process.resolve(found)) == all_at("1.0.0")
