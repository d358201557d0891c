"""Tests the manifests of the guide (case 99).

That RRSA is used where there is no key is in `test_sdk.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def objects():
    """All objects of the guide, by kind and name."""
    files = (EXAMPLES / "deploy" / "controller.yaml", EXAMPLES / "alibabacloud" / "settings.yaml")
    made = [each for file in files for each in yaml.safe_load_all(file.read_text()) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in made}


@pytest.fixture(scope="module")
def pod(objects):
    return objects["Deployment", "karpenter"]["spec"]["template"]["spec"]


def test_the_controllers_account_takes_a_role(objects, pod):
    """ACK's webhook selects namespaces by this label, and accounts by this annotation."""
    account = objects["ServiceAccount", pod["serviceAccountName"]]["metadata"]

    assert account["annotations"] == {
        "pod-identity.alibabacloud.com/role-name": "${CONTROLLER_ROLE}"
    }
    labels = objects["Namespace", account["namespace"]]["metadata"]["labels"]
    assert labels == {"pod-identity.alibabacloud.com/injection": "on"}


def test_no_key_is_mounted_without_a_secret(objects, pod):
    assert not any(kind == "Secret" for kind, _ in objects)
    assert not any("secret" in str(volume).lower() for volume in pod["volumes"])
    secrets = []
    for container in pod["containers"]:
        secrets += [each["secretRef"] for each in container["envFrom"] if "secretRef" in each]
        assert not any("secretKeyRef" in str(each) for each in container["env"])
    assert secrets == [{"name": "karpenter-credentials", "optional": True}]
    settings = objects["ConfigMap", "karpenter-settings"]["data"]
    assert not any("ACCESS_KEY" in name for name in settings)
