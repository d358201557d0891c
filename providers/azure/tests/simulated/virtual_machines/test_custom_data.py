"""Reading custom data as the first boot does."""

from __future__ import annotations

import gzip
from base64 import b64encode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.simulated.kubelets import BootError, NodeTaint
from karpenter_simulated_azure.custom_data import read_kubelet_settings

START = "/bin/bash /opt/azure/containers/provision_start.sh"
TOKEN = 'TLS_BOOTSTRAP_TOKEN="abcdef.0123456789abcdef"'


def script(flags="--max-pods=30", labels="", *, token=TOKEN, start=START):
    return f'#!/bin/bash\n{token} KUBELET_FLAGS="{flags}" KUBELET_NODE_LABELS="{labels}" {start}\n'


def encoded(text):
    return b64encode(text.encode()).decode()


def test_a_kubelet_starts_with_its_flags_and_labels():
    settings = read_kubelet_settings(
        encoded(
            script(
                "--max-pods=250 --kube-reserved=cpu=140m,memory=1638Mi"
                " --eviction-hard=memory.available<750Mi,nodefs.available<10%"
                " --register-with-taints=karpenter.sh/unregistered:NoExecute,a=b:NoSchedule",
                "kubernetes.azure.com/mode=user,karpenter.sh/nodepool=default",
            )
        )
    )
    assert settings.max_pods == 250
    assert settings.amounts("kube-reserved") == {"cpu": "140m", "memory": "1638Mi"}
    assert settings.eviction_thresholds == {"memory.available": "750Mi", "nodefs.available": "10%"}
    assert settings.labels == {
        "kubernetes.azure.com/mode": "user",
        "karpenter.sh/nodepool": "default",
    }
    assert settings.taints == (
        NodeTaint(key="karpenter.sh/unregistered", effect="NoExecute"),
        NodeTaint(key="a", value="b", effect="NoSchedule"),
    )


def test_variables_may_be_exported_line_by_line():
    text = (
        f"#!/bin/bash\nexport {TOKEN}\nexport KUBERNETES_VERSION=1.33.4\n"
        f'KUBELET_FLAGS="--max-pods=50"\n# KUBELET_FLAGS="--max-pods=10"\n{START}\n'
    )
    settings = read_kubelet_settings(encoded(text))
    assert (settings.max_pods, settings.kubernetes_version) == (50, "1.33.4")


def test_compressed_custom_data_is_read():
    content = gzip.compress(script().encode())
    assert read_kubelet_settings(b64encode(content).decode()).max_pods == 30


def test_the_command_of_the_script_extension_may_start_the_kubelet():
    command = f'{TOKEN} KUBELET_FLAGS="--max-pods=20" {START}'
    assert read_kubelet_settings(encoded("#cloud-config\n"), command).max_pods == 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo hello", "neither a script nor a cloud-config"),
        (script(start="true"), "does not start provision_start.sh"),
        (script(token=""), "no bootstrap token"),
        (script(flags=""), "does not set KUBELET_FLAGS"),
        (script(flags="max-pods=30"), "cannot read the flag"),
        (script(flags="--max-pods=many"), "is not a number"),
        (script(labels="kubernetes.azure.com/mode"), "cannot read 'kubernetes.azure.com/mode'"),
        (script(labels="a=b c"), "which no label can have"),
        (script(labels=f"a={'b' * 64}"), "which no label can have"),
        (script(labels="node-restriction.kubernetes.io/x=y"), "may not set the label"),
        (script(labels="kubernetes.io/x=y"), "may not set the label"),
        (script(flags="--register-with-taints=a=b:Never"), "cannot read the taint"),
    ],
)
def test_custom_data_that_starts_no_kubelet_says_why(text, message):
    with pytest.raises(BootError, match=message):
        read_kubelet_settings(encoded(text))


def test_labels_that_a_kubelet_may_set_are_set():  # case 89
    labels = "node.kubernetes.io/x=y,sub.kubelet.kubernetes.io/x=y,kubernetes.io/arch=amd64"
    assert len(read_kubelet_settings(encoded(script(labels=labels))).labels) == 3


@given(st.text(max_size=200))
def test_every_custom_data_boots_or_is_a_boot_error(text):
    with suppress(BootError):
        read_kubelet_settings(text)
    with suppress(BootError):
        read_kubelet_settings(encoded(f"#!/bin/bash\n{text}\n{START}"))
