"""`karpenter simulate` records what the unchanged controllers do with a workload."""

from __future__ import annotations

import io
import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.inputs import instance_type, offering, option_names, pool, write
from tests.cli.simulate.conftest import CONSOLIDATING

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "simulate"
WEB = {"name": "web", "cpu": "1", "memory": "1Gi"}

BURST = {
    "deployments": [
        {
            **WEB,
            "replicas": 1,
            "steps": [{"at": "10m", "replicas": 5}, {"at": "20m", "replicas": 1}],
        }
    ]
}


def only(document):
    (found,) = document["simulations"]
    return found


def test_the_cost_is_the_price_from_the_launch_on(simulate):
    """One node of 0.10 per hour for one pod, from a few seconds after the beginning to the end."""
    found = only(simulate({"deployments": [{**WEB, "replicas": 1}]}, "--duration", "30m"))

    assert found["cost"]["byInstanceType"] == {"small": found["cost"]["total"]}
    launched_at = 1800 - found["cost"]["total"] / 0.10 * 3600
    assert 0 < launched_at < 5
    assert found["nodes"]["mean"] == pytest.approx((1800 - launched_at) / 1800, abs=1e-4)
    assert found["nodes"]["launched"] == found["nodes"]["peak"] == found["nodes"]["atEnd"] == 1
    assert found["nodes"]["removed"] == 0
    assert found["pendingSeconds"]["count"] == 1
    assert found["pendingSeconds"]["max"] == pytest.approx(launched_at + 40, abs=1)
    assert found["startupSeconds"]["max"] == pytest.approx(found["pendingSeconds"]["max"] + 2)


def test_the_series_add_up_to_the_totals(simulate):
    """Means of steps, weighted by their length; the last step may be shorter."""
    workload = {"deployments": [{**WEB, "replicas": 1, "steps": [{"at": "20m", "replicas": 6}]}]}
    found = only(simulate(workload, "--duration", "50m", "--step", "15m"))

    series, weights = found["series"], [900, 900, 900, 300]
    assert series["stepSeconds"] == 900
    cost = sum(
        price * seconds for price, seconds in zip(series["pricePerHour"], weights, strict=True)
    )
    assert cost / 3600 == pytest.approx(found["cost"]["total"], abs=1e-5)
    pods = sum(count * seconds for count, seconds in zip(series["pods"], weights, strict=True))
    assert pods == pytest.approx(found["pods"]["mean"] * 3000, abs=0.1)
    assert pods == pytest.approx(20 * 60 + 30 * 60 * 6, rel=0.01)  # evicted pods end a little later


@pytest.mark.cluster_runs
def test_the_cost_is_that_of_the_account_of_the_cloud(simulate, tmp_path):
    """The provider's own record of instances, from launch to end, gives the same sum."""
    state = tmp_path / "cloud.sqlite3"
    workload = {
        "deployments": [{**WEB, "sine": {"low": 1, "high": 12, "period": "2h", "every": "5m"}}],
        "jobs": [{"name": "job", "every": "30m", "duration": "7m", "pods": 3, "cpu": "1500m"}],
    }
    found = only(simulate(workload, "--duration", "4h", "--set", f"kwok-state-file={state}"))

    with closing(sqlite3.connect(state)) as cloud:
        rows = cloud.execute(
            "SELECT price_per_hour, launched_at, gone_at FROM instances"
        ).fetchall()
    end = datetime(2030, 1, 1, 4, tzinfo=UTC).timestamp()
    cost = sum(price * (min(gone or end, end) - at) for price, at, gone in rows) / 3600
    assert found["nodes"]["launched"] == len(rows) > found["nodes"]["atEnd"]
    assert found["cost"]["total"] == pytest.approx(cost, rel=0.002)  # claims go a moment later


def test_progress_is_shown_on_a_terminal_alone(simulate, monkeypatch):
    """On stderr, in a line that is removed at the end."""
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", shown)
    document = simulate({"deployments": [{**WEB, "replicas": 2}]}, "--duration", "30m")

    lines = shown.getvalue().split("\r\x1b[K")
    assert only(document)["nodes"]["launched"] == 1
    assert any("50%" in line and "2 pods" in line for line in lines)
    assert lines[-1] == ""


@pytest.mark.cluster_runs
def test_equal_input_gives_equal_bytes(simulate):
    """And another seed another course."""
    workload = {
        "deployments": [{**WEB, "sine": {"low": 1, "high": 9, "period": "1h", "noise": 0.3}}],
        "jobs": [{"name": "job", "every": "10m", "duration": "4m", "pods": 2, "cpu": "1"}],
    }
    options = ("--duration", "1h", "--spot-reclaims", "2", "--stock-outs", "2")
    types = [
        instance_type(name, cpu, "16Gi", offering(price), offering(price / 3, capacity_type="spot"))
        for name, cpu, price in (("small", "2", 0.1), ("medium", "4", 0.19))
    ]

    first, again = (json.dumps(simulate(workload, *options, types=types)) for _ in range(2))
    other = json.dumps(simulate(workload, *options, "--seed", "1", types=types))

    assert first == again
    assert other.replace('"seed": 1', '"seed": 0') != first


def test_reclaimed_spot_nodes_are_drained_and_replaced(simulate):
    """Their pods are evicted within the notice, none is lost with its node."""
    types = [
        instance_type("small", "2", "8Gi", offering(0.10), offering(0.03, capacity_type="spot"))
    ]
    workload = {"deployments": [{**WEB, "replicas": 3}]}
    found = only(simulate(workload, "--duration", "1h", "--spot-reclaims", "2", types=types))

    reclaims = found["cloud"]["spotReclaims"]
    assert reclaims > 3
    assert found["disruptions"]["SpotInterruption"] in {reclaims, reclaims - 1}
    assert found["pods"]["evicted"] >= reclaims - 1
    assert found["pods"]["lost"] == 0
    assert found["waiting"]["count"] == 0
    by_type = found["cost"]["byCapacityType"]
    assert next(iter(by_type)) == "spot"  # for minutes after a reclaim its offering is not used


def test_an_offering_that_is_sold_out_is_replaced_by_the_next(simulate):
    """The stock-out strikes the offering in use; new nodes are of another one."""
    types = [
        instance_type("cheap", "2", "8Gi", offering(0.10)),
        instance_type("dear", "2", "8Gi", offering(0.30)),
    ]
    workload = {"deployments": [{**WEB, "replicas": 1, "steps": [{"at": "30m", "replicas": 4}]}]}
    options = ("--duration", "1h", "--stock-outs", "60", "--stock-out-duration", "24h")
    found = only(simulate(workload, *options, types=types))

    assert found["cost"]["byInstanceType"].keys() == {"cheap", "dear"}
    assert found["waiting"]["count"] == 0
    assert found["cloud"]["stockOuts"] >= 1


def test_pods_of_jobs_end_and_their_nodes_go(simulate):
    """Each pod runs its time; afterwards nothing is left."""
    workload = {
        "jobs": [{"name": "batch", "at": "5m", "pods": 8, "duration": "10m", "cpu": "1500m"}]
    }
    found = only(simulate(workload, "--duration", "1h"))

    assert found["pods"]["jobPodsFinished"] == 8
    assert found["pods"]["jobPodsRestarted"] == 0
    assert found["nodes"]["atEnd"] == 0
    assert found["nodes"]["removed"] == found["nodes"]["launched"] > 0
    assert found["disruptions"] == {"Empty": found["nodes"]["removed"]}
    assert found["series"]["pods"][-1] == 0


def test_an_evicted_pod_of_a_job_begins_again(simulate):
    """Its node is reclaimed before it has run its time."""
    types = [instance_type("small", "2", "8Gi", offering(0.03, capacity_type="spot"))]
    workload = {"jobs": [{"name": "long", "pods": 3, "duration": "10m", "cpu": "1"}]}
    found = only(simulate(workload, "--duration", "2h", "--spot-reclaims", "6", types=types))

    assert found["pods"]["jobPodsRestarted"] > 0
    assert found["pods"]["jobPodsFinished"] == 3


def test_pods_that_fit_no_node_are_counted(simulate):
    """As waiting at the end, with the time since their creation."""
    workload = {"deployments": [{**WEB, "cpu": "64", "replicas": 2}]}
    found = only(simulate(workload, "--duration", "30m"))

    assert found["waiting"] == {
        "count": 2, "mean": 1800.0, "p50": 1800.0, "p90": 1800.0, "p95": 1800.0, "p99": 1800.0, "max": 1800.0,
    }  # fmt: skip
    assert found["cost"]["total"] == 0
    assert found["pods"]["peakPending"] == 2


def test_settings_of_the_controller_are_used(simulate):
    """A longer batch makes pods wait longer."""
    workload = {"deployments": [{**WEB, "replicas": 1}]}
    options = ("--set", "batch-idle-duration=30s", "--set", "batch-max-duration=60s")
    slow = only(simulate(workload, "--duration", "30m", *options))
    quick = only(simulate(workload, "--duration", "30m"))

    assert slow["settings"] == ["--batch-idle-duration=30s", "--batch-max-duration=60s"]
    waited = slow["pendingSeconds"]["max"] - quick["pendingSeconds"]["max"]
    assert 28 < waited < 61


def test_node_pools_of_other_providers_use_the_catalogue(simulate, tmp_path, capsys):
    """Their NodeClass is left out, with a note."""
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {},
    }
    pools = write(tmp_path / "aws.yaml", node_class, pool(template={"nodeClassRef": ref}))
    workload = {"deployments": [{**WEB, "replicas": 1}]}
    found = only(simulate(workload, "--duration", "10m", pools=pools))

    assert found["nodes"]["launched"] == 1


def test_objects_beside_the_workload_are_created(simulate, tmp_path):
    """A DaemonSet takes room on each node, and a curve scales a Deployment that is an object."""
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}

    def template(name):
        return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}

    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent")}
    agent = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": spec,
    }
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template("web"),
        },
    }
    curve = {"deployments": [{"name": "web", "steps": [{"at": "5m", "replicas": 2}]}]}
    file = write(tmp_path / "objects.yaml", agent, web, curve)
    found = only(simulate(file, "--duration", "30m"))

    assert found["cost"]["byInstanceType"].keys() == {"medium"}
    assert found["pendingSeconds"]["count"] == 2


def test_a_comparison_shows_both_side_by_side(simulate, tmp_path):
    """The same pods cost more on dearer types; every form of output says so."""
    dear = pool(
        template={
            "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large"]}
            ]
        }
    )
    other = write(tmp_path / "large.yaml", dear)
    workload = {"deployments": [{**WEB, "replicas": 2}]}
    options = ("--duration", "20m", "--compare", other)
    document = simulate(workload, *options)
    first, second = document["simulations"]

    assert second["cost"]["total"] > first["cost"]["total"]
    difference = document["difference"]
    assert difference["costTotal"] == pytest.approx(
        second["cost"]["total"] - first["cost"]["total"], abs=1e-5
    )
    table = simulate(workload, *options, output="table")
    assert "more than" in table.replace("\n", " ")
    assert max(map(len, table.splitlines())) <= 80
    page = simulate(workload, *options, output="html")
    root = ET.fromstring(re.sub(r"<!DOCTYPE html>|<meta [^>]*>", "", page))
    assert all(len(chart.findall(".//polyline")) == 2 for chart in root.iter("svg"))
    assert len(list(root.iter("svg"))) == 6


def test_the_page_needs_nothing_else(simulate):
    """Neither scripts nor other files, and what is random text is escaped."""
    workload = {"deployments": [{**WEB, "replicas": 2}]}
    page = simulate(workload, "--duration", "30m", output="html")

    assert "default-src 'none'" in page
    assert not re.search(r"<script|<link|<img|src=|url\(|https?://", page)
    root = ET.fromstring(re.sub(r"<!DOCTYPE html>|<meta [^>]*>", "", page))
    assert all(chart.get("aria-label") for chart in root.iter("svg"))


def test_an_example_runs(program, monkeypatch):
    """Every example of a workload is read; the trace is played to its end."""
    monkeypatch.chdir(ROOT)
    shown = program(
        "simulate", "--nodepools", "examples/simulate/nodepools.yaml",
        "--workload", "examples/simulate/trace.csv", "--duration", "2h", "-o", "json",
    )  # fmt: skip
    found = only(json.loads(shown.out))

    assert found["pods"]["jobPodsFinished"] + found["pods"]["jobPodsRestarted"] >= 5
    assert found["waiting"]["count"] == 0


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"deployment": []}, 'document 1: field "deployment": unknown field'),
        (
            {"deployments": [{"name": "web", "replicas": -1, "cpu": "1"}]},
            "document 1: field \"deployments[0].replicas\": input should be greater than or equal to 0, not '-1'",
        ),
        (
            {"deployments": [{"name": "web", "replicas": 1, "cpu": "much"}]},
            "field \"deployments[0].cpu\": must be a quantity such as 500m or 2Gi, not 'much'",
        ),
        (
            {"deployments": [{"name": "web", "cpu": "1"}]},
            'field "deployments[0]": needs replicas, steps, cron or sine',
        ),
        (
            {"deployments": [{"name": "web", "replicas": 2}]},
            'deployments[0]: Deployment "default/web" has no pods',
        ),
        (
            {"deployments": [{**WEB, "steps": [{"at": "soon", "replicas": 1}]}]},
            "field \"deployments[0].steps[0].at\": must be a duration such as 90s or 8h30m, not 'soon'",
        ),
        (
            {"deployments": [{**WEB, "cron": [{"schedule": "7 o'clock", "replicas": 1}]}]},
            'field "deployments[0].cron[0].schedule": schedule "7 o\'clock"',
        ),
        (
            {"deployments": [{**WEB, "sine": {"low": 5, "high": 2}}]},
            'field "deployments[0].sine": low (5) is above high (2)',
        ),
        (
            {"deployments": [{**WEB, "replicas": 1}, {**WEB, "replicas": 2}]},
            'Deployment "default/web": is already in',
        ),
        (
            {"jobs": [{"name": "job", "cpu": "1"}]},
            'field "jobs[0].duration": missing',
        ),
        (
            {"deployments": [{**WEB, "name": "Web", "replicas": 1}]},
            'deployments[0]: Deployment "default/Web": ',
        ),
        ({"deployments": []}, "no workload: no Deployment, job or object"),
    ],
)
def test_a_workload_that_cannot_be_used_is_refused(simulate, tmp_path, workload, message):
    """In one line that names file, field and value."""
    (line,) = simulate(workload, "--duration", "10m", code=2).splitlines()

    assert line.startswith(f"karpenter: {tmp_path / 'workload.yaml'}")
    assert message in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--duration", "a day"), '--duration: must be a duration such as 90s or 24h, not "a day"'),
        (("--duration", "0s"), "--duration: must be above zero"),
        (("--start", "noon"), "--start: must be a time such as"),
        (("--start", "0001-01-01"), "--start: must be in a year from 1970 to 9000"),
        (("--start", "9999-12-31T23:59:59Z"), "--start: must be in a year from 1970 to 9000"),
        (("--spot-reclaims", "inf"), "--spot-reclaims: must be finite, not inf"),
        (("--stock-outs", "inf"), "--stock-outs: must be finite, not inf"),
        (("--set", "batch-idle-duration"), '--set: "batch-idle-duration" is not NAME=VALUE'),
        (("--set", "no-such-thing=1"), "no-such-thing"),
        (("--step", "1ms"), "--step: must be at least 1s"),
        (("--trace-speed", "0"), "--trace-speed: must be above zero, not 0"),
        (("--trace-columns", "arrival"), '--trace-columns: "arrival" is not FIELD=COLUMN'),
        (("--shard", "0/2"), "--shard is a part of a sweep: add --sweep"),
        (("--sweep", "seed=1,2", "--shard", "2/2"), '--shard: "2/2" is not INDEX/COUNT'),
        (("--sweep", "seed=1,2", "--shard", "5/9"), "--shard: there are only 2 runs"),
        (("--sweep", "seed"), '--sweep: "seed" is not KEY=VALUE,VALUE'),
        (("--sweep", "seed=1", "--sweep", "seed=2"), '--sweep: key "seed" is duplicated'),
        (("--sweep", "seed=x"), '--sweep: seed: "x" is not a number'),
        (("--sweep", "other:spec.weight=1"), 'there is no NodePool "other"'),
        (
            ("--sweep", "spec.disruption.consolidateafter=1m"),
            "NodePools have no field spec.disruption.consolidateafter",
        ),
        (
            ("--sweep", "spec.template.spec.requirements[3].values=[a]"),
            "there is no entry [3]",
        ),
        (("--sweep", "spec.disruption.consolidateAfter=soon"), "consolidateAfter"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(simulate, options, message):
    """In one line that names the option and its value."""
    workload = {"deployments": [{**WEB, "replicas": 1}]}
    (line,) = simulate(workload, *options, code=2).splitlines()

    assert line.startswith("karpenter: ")
    assert message in line


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}},), "no NodePool"),
        ((pool(), pool()), 'NodePool "general": is already in'),
        ((pool(weight=0),), 'NodePool "general": '),
        (
            (pool(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}),
            'Node "n": a simulation begins without nodes',
        ),
        (
            (
                pool(
                    template={
                        "requirements": [
                            {"key": "example.com/x", "operator": "Gt", "values": ["y"]}
                        ]
                    }
                ),
            ),
            'NodePool "general"',
        ),
    ],
)
def test_node_pools_that_cannot_be_used_are_refused(simulate, tmp_path, objects, message):
    """In one line that names file and object."""
    pools = write(tmp_path / "pools.yaml", *objects)
    workload = {"deployments": [{**WEB, "replicas": 1}]}
    (line,) = simulate(workload, "--duration", "10m", pools=pools, code=2).splitlines()

    assert line.startswith(f"karpenter: {pools}")
    assert message in line


def test_another_provider_needs_a_catalogue(program, tmp_path):
    """The message says so."""
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    pools = write(tmp_path / "aws.yaml", pool(template={"nodeClassRef": ref}))
    shown = program("simulate", "--nodepools", pools, "--workload", EXAMPLES / "redis.yaml", code=2)

    assert "EC2NodeClass.karpenter.k8s.aws is of another provider" in shown.err
    assert "--instance-types-file" in shown.err


def test_images_without_the_embedded_cluster_say_so(simulate, monkeypatch):
    """As images of the controller are."""
    monkeypatch.setattr("karpenter_core.cli.simulate.command.find_spec", lambda _name: None)
    refusal = simulate(BURST, code=2)

    assert "the embedded cluster is not installed" in refusal


def test_unknown_fields_of_a_node_pool_are_noted(program, tmp_path):
    """They are ignored, as an API server does."""
    pools = write(
        tmp_path / "pools.yaml", pool(disruption={**CONSOLIDATING, "consolidateAftr": "1s"})
    )
    shown = program(
        "simulate", "--nodepools", pools, "--workload", EXAMPLES / "redis.yaml", "--duration", "1m"
    )

    assert "spec.disruption.consolidateAftr: unknown field, ignored" in shown.err


class TestSweep:
    """Runs every combination of values."""

    def test_every_combination_is_run_and_the_cheapest_is_first(self, simulate):
        """Nodes that are consolidated later cost more."""
        document = simulate(
            BURST, "--duration", "30m",
            "--sweep", "spec.disruption.consolidateAfter=30s,Never",
            "--sweep", "batch-idle-duration=1s,5s",
        )  # fmt: skip
        runs = document["runs"]

        assert len(runs) == 4
        costs = [run["cost"]["total"] for run in runs]
        assert costs == sorted(costs)
        key = "spec.disruption.consolidateAfter"
        assert [run["values"][key] for run in runs] == ["30s", "30s", "Never", "Never"]
        assert costs[2] > costs[1]

    @pytest.mark.cluster_runs
    def test_processes_give_the_same_as_one(self, simulate):
        """The result does not depend on their number."""
        options = ("--duration", "20m", "--sweep", "seed=1,2")
        alone = simulate(BURST, *options)
        together = simulate(BURST, *options, "--jobs", "2")

        assert alone == together
        assert {run["seed"] for run in alone["runs"]} == {1, 2}

    @pytest.mark.cluster_runs
    def test_shards_are_the_parts_of_a_sweep(self, simulate):
        """Together they have every run once."""
        options = ("--duration", "5m", "--sweep", "seed=1,2,3")
        parts = [simulate(BURST, *options, "--shard", f"{index}/2")["runs"] for index in range(2)]

        assert [sorted(run["seed"] for run in part) for part in parts] == [[1, 3], [2]]

    @pytest.mark.cluster_runs
    def test_a_refusal_comes_from_another_process(self, simulate):
        """As the same one line."""
        options = ("--sweep", "spec.weight=1000,1001", "--jobs", "2")
        (line,) = simulate(BURST, *options, code=2).splitlines()

        assert line.startswith("karpenter: ")
        assert "spec.weight" in line

    @pytest.mark.cluster_runs
    def test_table_and_page_have_all_runs(self, simulate):
        """The table fits 80 columns."""
        options = ("--duration", "20m", "--sweep", "seed=1,2")
        table = simulate(BURST, *options, output="table")
        page = simulate(BURST, *options, output="html")

        assert max(map(len, table.splitlines())) <= 80
        for text in (table, page):
            assert all(f"seed={seed}" in text for seed in (1, 2))


class TestStories:
    """The examples hold what their comments say."""

    def simulate(self, program, monkeypatch, workload, *options):
        monkeypatch.chdir(ROOT)
        shown = program(
            "simulate", "--nodepools", "examples/simulate/nodepools.yaml",
            "--workload", f"examples/simulate/{workload}", *options, "-o", "json",
        )  # fmt: skip
        return only(json.loads(shown.out))

    @pytest.mark.cluster_runs
    def test_large_requests_of_low_use_do_not_flap(self, program, monkeypatch):
        """Once the pods of the caches run, no node is removed and no pod is evicted for a day."""
        found = self.simulate(program, monkeypatch, "redis.yaml", "--duration", "24h")

        assert found["nodes"]["removed"] == 0
        assert found["nodes"]["launched"] == found["nodes"]["atEnd"] > 0
        assert found["pods"]["evicted"] == found["pods"]["lost"] == 0
        assert found["disruptions"] == {}
        assert found["pendingSeconds"]["count"] == 6

    def test_fifty_replicas_run_within_a_minute(self, program, monkeypatch):
        """With nodes that need 40 s to start; the nodes go again with the pods."""
        found = self.simulate(program, monkeypatch, "fifty-replicas.yaml", "--duration", "2h")

        assert found["startupSeconds"]["count"] >= 50
        assert found["startupSeconds"]["max"] < 60
        assert found["nodes"]["atEnd"] == 1
        assert found["waiting"]["count"] == 0
        assert found["series"]["pricePerHour"][-1] < max(found["series"]["pricePerHour"]) / 5


class TestReference:
    """`docs/reference/simulate.md` documents options, fields and output."""

    page = (ROOT / "docs/reference/simulate.md").read_text()

    def test_every_option_is_in_the_table(self):
        """And none that does not exist."""
        from karpenter_core.cli.simulate.command import simulate

        lines = self.page.partition("| option | meaning |")[2].splitlines()[2:]
        table = lines[: next(n for n, line in enumerate(lines) if not line.startswith("|"))]
        listed = {name for line in table for name in re.findall(r"`(-[^`]+)`", line.split("|")[1])}
        assert listed == option_names(simulate)

    def test_every_field_of_a_workload_is_on_the_page(self):
        """With its name in the file."""
        from karpenter_core.cli.simulate import workload_models

        for model in (
            workload_models.DeploymentSpec,
            workload_models.JobSpec,
            workload_models.SineCurve,
        ):
            for field in model.model_fields.values():
                assert f"`{field.alias}`" in self.page or f"{field.alias}:" in self.page

    def test_every_field_of_the_output_is_on_the_page(self, simulate):
        """Of a simulation and of its sections."""
        found = only(simulate({"deployments": [{**WEB, "replicas": 1}]}, "--duration", "5m"))
        section = self.page.partition("## JSON")[2]

        names = {*found, *found["nodes"], *found["pods"], *found["series"], *found["cost"]}
        names |= {*found["pendingSeconds"], *found["cloud"], *found["utilisation"]}
        assert all(f"`{name}`" in section for name in names), names
