"""The options of the process (case 275) and their documentation."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path

import pytest

from karpenter_core.api.records import TopologySpread
from karpenter_core.errors import SettingsError
from karpenter_core.operator.settings import (
    OPTIONS,
    FeatureGates,
    Settings,
    load_settings,
    markdown_table,
    options_by_plugin,
    parse_feature_gates,
)
from karpenter_core.provider.contract import SettingSpec

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_the_table_and_the_fields_have_the_same_defaults():
    """Parsing nothing gives what the dataclass says."""
    assert Settings() == load_settings([], {})
    names = {item.name for item in fields(Settings)} - {"plugins"}
    assert names == {option.field for option in OPTIONS}


def test_defaults_are_those_of_the_reference():
    """Case 275."""
    settings = load_settings([], {})

    assert (settings.metrics_port, settings.health_probe_port) == (8080, 8081)
    assert (settings.kube_client_qps, settings.kube_client_burst) == (200, 300)
    assert timedelta(seconds=10) == settings.batch_max_duration
    assert timedelta(seconds=1) == settings.batch_idle_duration
    assert settings.leader_election_name == "karpenter-leader-election"
    assert settings.disable_controller_warmup
    assert settings.ignore_dra_requests
    assert settings.memory_limit == -1
    assert settings.log_level == "info"
    assert FeatureGates() == settings.feature_gates


def test_a_flag_beats_the_environment_which_beats_the_default():
    """Case 275."""
    settings = load_settings(
        ["--metrics-port", "9000", "--log-level=debug"],
        {"METRICS_PORT": "9001", "HEALTH_PROBE_PORT": "9002"},
    )

    assert settings.metrics_port == 9000
    assert settings.health_probe_port == 9002
    assert settings.log_level == "debug"
    assert settings.kube_client_qps == 200


@pytest.mark.parametrize(
    ("variable", "field"),
    [
        ("METRICS_PORT", "metrics_port"),
        ("ENABLE_PROFILING", "enable_profiling"),
        ("BATCH_MAX_DURATION", "batch_max_duration"),
    ],
)
def test_a_malformed_variable_falls_back_to_the_default(variable, field):
    """Numbers, truth values and durations alike."""
    assert getattr(load_settings([], {variable: "??"}), field) == getattr(Settings(), field)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--metrics-port=many"],
        ["--enable-profiling=yes"],
        ["--enable-profiling=True"],
        ["--batch-max-duration=10"],
        ["--metrics-port"],
    ],
)
def test_a_malformed_flag_is_an_error_that_names_it(arguments):
    """What a user typed on the command line is never ignored."""
    with pytest.raises(SettingsError, match=arguments[0].partition("=")[0]):
        load_settings(arguments, {})


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_truth_values_in_the_environment_take_every_form_go_takes(text):
    """Charts have all of them."""
    assert load_settings([], {"ENABLE_PROFILING": text}).enable_profiling


def test_a_flag_for_a_truth_value_may_stand_alone():
    """`--disable-leader-election` means true."""
    assert load_settings(["--disable-leader-election"], {}).disable_leader_election


@pytest.mark.parametrize(
    ("variable", "value"),
    [("LOG_LEVEL", "hello"), ("PREFERENCE_POLICY", "maybe"), ("MIN_VALUES_POLICY", "strict")],
)
def test_an_unknown_choice_stops_the_start_and_names_the_variable(variable, value):
    """Case 275."""
    with pytest.raises(SettingsError, match=f'{variable} must be one of .*not "{value}"'):
        load_settings([], {variable: value})


def test_an_unknown_flag_or_a_stray_word_is_an_error():
    """A typing mistake must not start a process with defaults."""
    with pytest.raises(SettingsError, match="unknown option --metric-port"):
        load_settings(["--metric-port=1"], {})
    with pytest.raises(SettingsError, match='unexpected argument "start"'):
        load_settings(["start"], {})


@pytest.mark.parametrize("text", ["0", "-50"])
def test_cpu_requests_without_sense_become_a_core(text):
    """Case 275."""
    assert load_settings([], {"CPU_REQUESTS": text}).cpu_requests == 1000


@pytest.mark.parametrize(
    ("gate", "field"),
    [
        ("NodeRepair", "node_repair"),
        ("ReservedCapacity", "reserved_capacity"),
        ("SpotToSpotConsolidation", "spot_to_spot_consolidation"),
        ("NodeOverlay", "node_overlay"),
        ("StaticCapacity", "static_capacity"),
        ("CapacityBuffer", "capacity_buffer"),
    ],
)
def test_each_gate_toggles_alone(gate, field):
    """Case 275."""
    flipped = not getattr(FeatureGates(), field)

    gates = parse_feature_gates(f"{gate}={str(flipped).lower()}")

    assert FeatureGates(**{field: flipped}) == gates


def test_gates_tolerate_spaces_and_unknown_names():
    """Case 275."""
    assert FeatureGates() == parse_feature_gates("SpotToSpotConsolidation\t= false, Unknown=true,")


def test_a_gate_that_is_neither_true_nor_false_is_an_error():
    """With the gate's name in it."""
    with pytest.raises(SettingsError, match="NodeRepair must be true or false"):
        parse_feature_gates("NodeRepair=on")


def test_a_default_spread_is_read():
    """Case 275: scheduler-config."""
    text = """
podTopologySpread:
  defaultConstraints:
  - {maxSkew: 2, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
"""
    (spread,) = load_settings([], {"SCHEDULER_CONFIG": text}).scheduler_config

    assert (spread.max_skew, spread.topology_key) == (2, "topology.kubernetes.io/zone")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "# none",
        "{}",
        "podTopologySpread: {}",
        "podTopologySpread: {defaultConstraints: []}",
    ],
)
def test_a_scheduler_configuration_may_hold_nothing(text):
    """Cases 275 and 349."""
    assert load_settings([f"--scheduler-config={text}"], {}).scheduler_config == ()


def test_a_default_spread_keeps_all_its_fields_and_may_be_json():
    """Cases 348 and 349; one key may be there with either policy."""
    hosts = {
        "maxSkew": 3, "topologyKey": "kubernetes.io/hostname", "minDomains": 2,
        "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor",
    }  # fmt: skip
    constraints = [
        {**hosts, "whenUnsatisfiable": when} for when in ("ScheduleAnyway", "DoNotSchedule")
    ]
    text = json.dumps({"podTopologySpread": {"defaultConstraints": constraints}})

    soft, hard = load_settings([f"--scheduler-config={text}"], {}).scheduler_config

    assert soft == TopologySpread(
        topology_key="kubernetes.io/hostname",
        max_skew=3,
        when_unsatisfiable="ScheduleAnyway",
        min_domains=2,
        node_affinity_policy="Ignore",
        node_taints_policy="Honor",
    )
    assert hard.when_unsatisfiable == "DoNotSchedule"


@pytest.mark.parametrize(
    ("constraint", "complaint"),
    [
        ("{maxSkew: 0, topologyKey: a/b, whenUnsatisfiable: DoNotSchedule}", "maxSkew"),
        ("{maxSkew: -1, topologyKey: a/b, whenUnsatisfiable: DoNotSchedule}", "maxSkew"),
        ("{maxSkew: yes, topologyKey: a/b, whenUnsatisfiable: DoNotSchedule}", "maxSkew"),
        ("{topologyKey: a/b, whenUnsatisfiable: DoNotSchedule}", "maxSkew"),
        ("{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}", "topologyKey"),
        ("{maxSkew: 1, topologyKey: 'a b', whenUnsatisfiable: DoNotSchedule}", "topologyKey"),
        ("{maxSkew: 1, topologyKey: a/b}", "whenUnsatisfiable"),
        ("{maxSkew: 1, topologyKey: a/b, whenUnsatisfiable: Sometimes}", "whenUnsatisfiable"),
        ("{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, x: 1}", '"x"'),
        ("{maxSkew: 1, maxSkew: 2, topologyKey: a, whenUnsatisfiable: DoNotSchedule}", "twice"),
        (
            "{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, minDomains: 0}",
            "minDomains",
        ),
        (
            "{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: x}",
            "nodeTaintsPolicy",
        ),
        (
            "{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}",
            "labelSelector",
        ),
        (
            "{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, matchLabelKeys: [a]}",
            "matchLabelKeys",
        ),
        ("[]", "must be a mapping"),
    ],
)
def test_a_bad_default_spread_stops_the_start(constraint, complaint):
    """Cases 275 and 349: each rule, with one message that names the constraint or the line."""
    text = f"podTopologySpread: {{defaultConstraints: [{constraint}]}}"
    with pytest.raises(SettingsError, match=complaint) as error:
        load_settings([f"--scheduler-config={text}"], {})
    assert str(error.value).startswith("scheduler-config: ")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("podTopologySpread: {defaultConstraints: [", "cannot be read as YAML"),
        ("spread: {}", 'unknown field "spread"'),
        ("podTopologySpread: {constraints: []}", 'unknown field "constraints"'),
        ("podTopologySpread: {defaultConstraints: 7}", "must be a list"),
        ("[]", "must be a mapping"),
    ],
)
def test_a_scheduler_configuration_that_is_something_else_stops_the_start(text, complaint):
    """Case 349."""
    with pytest.raises(SettingsError, match=complaint):
        load_settings([f"--scheduler-config={text}"], {})


def test_two_default_spreads_for_one_key_and_policy_stop_the_start():
    """Case 275: scheduler-config."""
    one = "{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}"
    with pytest.raises(SettingsError, match="duplicate"):
        load_settings(
            [f"--scheduler-config=podTopologySpread: {{defaultConstraints: [{one}, {one}]}}"], {}
        )


def test_settings_of_plugins_are_read_like_our_own():
    """With their types, by flag."""
    specs = [
        SettingSpec(flag="delay", env="DELAY", default=timedelta(seconds=1), help="Wait."),
        SettingSpec(flag="types-file", env="TYPES_FILE", default="", help="File."),
        SettingSpec(flag="share", env="SHARE", default=0.075, help="Share."),
        SettingSpec(flag="percent", env="PERCENT", default=0.5, help="Percent."),
    ]
    environment = {"TYPES_FILE": "a.json", "SHARE": "0", "PERCENT": "much"}

    settings = load_settings(["--delay=3s"], environment, plugin_options=specs)

    assert settings.plugins == {
        "delay": timedelta(seconds=3),
        "types-file": "a.json",
        "share": 0.0,
        "percent": 0.5,
    }


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ((), {}, (0.075, 0.065)),
        (("--share=0.1",), {}, (0.1, 0.1)),
        ((), {"SHARE": "0"}, (0.0, 0.0)),
        ((), {"SHARE": "0.075"}, (0.075, 0.075)),
        ((), {"SHARE": "much"}, (0.075, 0.065)),
        (("--share=0.065",), {"SHARE": "0.1"}, (0.065, 0.065)),
    ],
)
def test_plugins_may_share_a_setting_each_with_its_own_default(arguments, environment, expected):
    one = SettingSpec(flag="--share", env="SHARE", default=0.075, help="Share, here.")
    other = SettingSpec(flag="--share", env="SHARE", default=0.065, help="Share, there.")

    settings = load_settings(arguments, environment, plugin_options=[one, other])

    assert tuple(settings.of_plugin([spec])["share"] for spec in (one, other)) == expected


def test_a_setting_that_is_shared_is_explained_for_each_plugin():
    one = SettingSpec(flag="--share", env="SHARE", default=0.075, help="Share, here.")
    other = SettingSpec(flag="--share", env="SHARE", default=0.065, help="Share, there.")

    found = options_by_plugin({"one": [one], "other": [other]})

    assert {name: [(o.default, o.help) for o in options] for name, options in found.items()} == {
        "one": [(0.075, "Share, here.")],
        "other": [(0.065, "Share, there.")],
    }


@pytest.mark.parametrize("other", [{"default": 1}, {"env": "PART"}, {"flag": "--part"}])
def test_a_setting_that_plugins_declare_differently_stops_the_start(other):
    """Of another type, or one word of the two in common."""
    one = SettingSpec(flag="--share", env="SHARE", default=0.075, help="Share.")

    with pytest.raises(SettingsError, match="declared twice"):
        load_settings([], {}, plugin_options=[one, replace(one, **other)])
    with pytest.raises(SettingsError, match="declared twice"):
        options_by_plugin({"one": [one], "other": [replace(one, **other)]})


def test_two_owners_of_one_setting_stop_the_start():
    """Flag or variable."""
    taken = SettingSpec(flag="metrics-port", env="X", default=1, help="")
    with pytest.raises(SettingsError, match="--metrics-port is declared twice"):
        load_settings([], {}, plugin_options=[taken])
    shared = SettingSpec(flag="other", env="METRICS_PORT", default=1, help="")
    with pytest.raises(SettingsError, match="METRICS_PORT is declared twice"):
        load_settings([], {}, plugin_options=[shared])


def test_every_setting_is_documented():
    """The page holds the table as the code renders it."""
    assert markdown_table() in DOCUMENTATION.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--max-nodes-total=-1"], "max-nodes-total: -1 is less than 0"),
        (["--launches-per-minute=-5"], "launches-per-minute: -5 is less than 0"),
        (["--repair-unhealthy-limit=some"], 'repair-unhealthy-limit: "some" is neither'),
        (["--repair-unhealthy-limit=120%"], 'repair-unhealthy-limit: "120%" is neither'),
        (["--repair-conditions=GPUFault"], 'repair-conditions: "GPUFault" is not CONDITION='),
    ],
)
def test_a_brake_that_makes_no_sense_stops_the_start(arguments, complaint):
    """A limit that silently is none would be found out too late."""
    with pytest.raises(SettingsError, match=complaint):
        load_settings(arguments, {})


def test_brakes_are_read():
    """The limit of repair is a share or a number."""
    settings = load_settings(
        ["--max-nodes-total=500", "--pause-disruption"],
        {"LAUNCHES_PER_MINUTE": "30", "REPAIR_UNHEALTHY_LIMIT": "3", "ACT_ON_REBALANCE": "true"},
    )

    assert (settings.max_nodes_total, settings.launches_per_minute) == (500, 30)
    assert (settings.pause_disruption, settings.act_on_rebalance) == (True, True)
    assert settings.repair_unhealthy_limit.of(1000) == 3


@pytest.mark.parametrize("size", ["0", "-1"])
def test_a_journal_without_any_size_is_refused(size):
    """It would be begun anew with every entry."""
    with pytest.raises(SettingsError, match=f"^decision-journal-max-bytes: {size} is no size$"):
        load_settings([f"--decision-journal-max-bytes={size}"], {})
