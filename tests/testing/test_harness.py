"""The harness that runs the whole controller against the embedded cluster."""

from __future__ import annotations

import pytest

from tests.controllers.whole_controller import run_controller


def test_a_metric_is_zero_before_its_first_series_and_refused_if_nothing_has_its_name(tmp_path):
    """Else a test that asks for a misspelt counter of errors could never fail."""

    async def scenario(scene):
        running = scene.start()
        await scene.cluster.clock.sleep(5)

        assert running.metric('karpenter_reconcile_errors_total{controller="node.health"}') == 0
        assert running.metric("karpenter_pods_startup_duration_seconds_count") == 0
        with pytest.raises(LookupError, match="no metric has the name karpenter_core_errors"):
            running.metric('karpenter_core_errors{controller="node.health"}')

    run_controller(tmp_path, scenario)
