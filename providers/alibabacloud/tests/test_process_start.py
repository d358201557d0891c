"""Tests the end of a process that cannot start (case 98).

What the parts say is in `test_settings.py`, `test_metadata.py` and `test_plugin.py`; here is the program.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

NOBODY = "127.0.0.1:9"
KUBECONFIG = f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://{NOBODY}"}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
users: [{{name: u, user: {{}}}}]
current-context: c
"""


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "karpenter: --cluster-id: must be given"),
        (
            {"CLUSTER_ID": "c1", "METADATA_ENDPOINT": f"http://{NOBODY}"},
            "karpenter: the Alibaba Cloud region is not known: set REGION_ID",
        ),
    ],
    ids=["no cluster", "no region"],
)
def test_a_process_without_region_or_cluster_ends_with_a_reason(tmp_path, settings, complaint):
    """Its exit code is not 0, and the last line says what to set."""
    config = tmp_path / "kubeconfig"
    config.write_text(KUBECONFIG)
    kept = {"PATH", "PYTHONPATH", "SYSTEMROOT", "TMPDIR"}
    environment = {name: value for name, value in os.environ.items() if name in kept}

    ended = subprocess.run(
        [
            *(sys.executable, "-m", "karpenter_core.cli.main", "run", "--providers=alibabacloud"),
            *(f"--kubeconfig={config}", f"--cache-folder={tmp_path}", "--disable-leader-election"),
            *("--metrics-port=0", "--health-probe-port=0"),
        ],
        env={**environment, "HOME": str(tmp_path), **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ended.returncode == 2
    assert ended.stderr.strip().splitlines()[-1].startswith(complaint)
