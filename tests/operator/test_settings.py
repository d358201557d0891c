"""Options are parsed, checked and documented (case 275)."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import karpenter_core
from karpenter_core.api.records import TopologySpread
from karpenter_core.errors import SettingsError
from karpenter_core.operator.option_shapes import parse_feature_gates
from karpenter_core.operator.option_values import value_text
from karpenter_core.operator.options import OPTIONS, options_table
from karpenter_core.operator.settings import Settings
from karpenter_core.operator.settings_loader import load_settings, options_by_plugin
from karpenter_core.provider.contract import FeatureGates, SettingSpec
from tests.properties import with_examples

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_the_table_and_the_fields_have_the_same_defaults():
    """Parsing nothing gives what the dataclass says."""
    assert Settings() == load_settings([], {})
    names = {item.name for item in fields(Settings)} - {"plugins", "warnings"}
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
    """Arguments of the command line are never ignored."""
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
    with pytest.raises(SettingsError, match=f'{variable}: must be one of .*not "{value}"'):
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
    with pytest.raises(SettingsError, match="--feature-gates: NodeRepair must be true or false"):
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
        (
            "{maxSkew: 1, maxSkew: 2, topologyKey: a, whenUnsatisfiable: DoNotSchedule}",
            "duplicated",
        ),
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
        ("[" * 5_000, "cannot be read as YAML: is nested too deeply"),
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
        SettingSpec(flag="percent", env="PERCENT", default=0.5, help="%", falls_back=True),
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
    one = SettingSpec(flag="--share", env="SHARE", default=0.075, help="Here.", falls_back=True)
    other = SettingSpec(flag="--share", env="SHARE", default=0.065, help="There.", falls_back=True)

    settings = load_settings(arguments, environment, plugin_options=[one, other])

    assert tuple(settings.of_plugin([spec])["share"] for spec in (one, other)) == expected


def test_a_setting_that_is_shared_is_explained_for_each_plugin():
    one = SettingSpec(flag="--share", env="SHARE", default=0.075, help="Share, here.")
    other = SettingSpec(flag="--share", env="SHARE", default=0.065, help="Share, there.")

    result = options_by_plugin({"one": [one], "other": [other]})

    assert {name: [(o.default, o.help) for o in options] for name, options in result.items()} == {
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
    assert options_table() in DOCUMENTATION.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--repair-unhealthy-limit=some"], 'repair-unhealthy-limit: "some" is neither'),
        (["--repair-unhealthy-limit=120%"], 'repair-unhealthy-limit: "120%" is neither'),
        (["--repair-conditions=GPUFault"], 'repair-conditions: "GPUFault" is not CONDITION='),
    ],
)
def test_an_invalid_launch_limit_stops_the_start(arguments, complaint):
    """A limit that silently is none would be found out too late."""
    with pytest.raises(SettingsError, match=complaint):
        load_settings(arguments, {})


def test_launch_limits_are_read():
    """The limit of repair is a share or a number."""
    settings = load_settings(
        ["--max-nodes-total=500", "--pause-disruption"],
        {"LAUNCHES_PER_MINUTE": "30", "REPAIR_UNHEALTHY_LIMIT": "3", "ACT_ON_REBALANCE": "true"},
    )

    assert (settings.max_nodes_total, settings.launches_per_minute) == (500, 30)
    assert (settings.pause_disruption, settings.act_on_rebalance) == (True, True)
    assert settings.repair_unhealthy_limit.allowed_of(1000) == 3


# -- values that cannot be used --------------------------------------------------------------------

OURS = {option.flag: option for option in OPTIONS if not option.falls_back}
REFERENCE = {option.flag: option for option in OPTIONS if option.falls_back}
NUMBER_LIKE = st.one_of(
    st.text(max_size=20),
    st.integers().map(str),
    st.floats().map(str),
    st.from_regex(r"[+-]?[0-9٣]{1,3}[._ ]?[0-9]{0,3}(s|m|h|%|k|/m)?", fullmatch=True),
    st.sampled_from(
        ["", " ", "yes", "on", "no", "fifty", "10/m", "0s", "-1s", "9" * 5000, "1e400"]
    ),
)
ASCII_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)


def given_as(option, text, *, by_flag):
    """Return arguments and environment that give an option this text."""
    return ([f"--{option.flag}={text}"], {}) if by_flag else ([], {option.env: text})


@pytest.mark.parametrize(
    ("flag", "text", "allowed"),
    [
        ("pause-disruption", "yes", "true or false"),
        ("pause-disruption", "", "true or false"),
        ("out-of-service-taint", "on", "true or false"),
        ("act-on-rebalance", "2", "true or false"),
        ("max-nodes-total", "fifty", "a whole number of 0 or more"),
        ("max-nodes-total", "", "a whole number of 0 or more"),
        ("max-nodes-total", "-1", "a whole number of 0 or more"),
        ("max-nodes-total", "1.5", "a whole number of 0 or more"),
        ("max-nodes-total", "٣", "a whole number of 0 or more"),
        ("launches-per-minute", "10/m", "a whole number of 0 or more"),
        ("launches-per-minute", "-5", "a whole number of 0 or more"),
        ("decision-journal-max-bytes", "0", "a whole number of 1 or more"),
        ("decision-journal-max-bytes", "64Mi", "a whole number of 1 or more"),
        ("launch-timeout", "0s", "a duration such as 90s or 1h30m, of 1s or more"),
        ("launch-timeout", "300", "a duration such as 90s or 1h30m, of 1s or more"),
        ("registration-timeout", "0s", "a duration such as 90s or 1h30m, of 1s or more"),
        ("registration-timeout", "-15m", "a duration such as 90s or 1h30m, of 1s or more"),
        ("initialization-timeout", "-1s", "a duration such as 90s or 1h30m, of 0s or more"),
        ("node-fee", "nan", "a number of 0 or more"),
        ("node-fee", "inf", "a number of 0 or more"),
        ("node-fee", "-0.1", "a number of 0 or more"),
        ("packing", "best", 'one of "value", "first-fit"'),
        ("log-format", "xml", 'one of "auto", "json", "console"'),
        ("currency", "usd", "the three capital letters of a currency, such as USD"),
        ("bind-address", "not an address", "an IP address or a host name"),
    ],
)
@pytest.mark.parametrize("by_flag", [True, False], ids=["flag", "variable"])
def test_an_option_of_ours_that_cannot_be_read_stops_the_start(flag, text, allowed, by_flag):
    """The message names option, value and what is allowed."""
    option = OURS[flag]
    source = f"--{flag}" if by_flag else option.env

    with pytest.raises(SettingsError) as error:
        load_settings(*given_as(option, text, by_flag=by_flag))

    assert f'{source}: must be {allowed}, not "{text}"' == str(error.value)


@pytest.mark.parametrize(
    ("flag", "text", "message"),
    [
        ("exchange-rates", "CNY=inf", '"CNY=inf" is not CURRENCY=NUMBER above zero'),
        ("exchange-rates", "CNY=0", '"CNY=0" is not CURRENCY=NUMBER above zero'),
        ("exchange-rates", "CNY", '"CNY" is not CURRENCY=NUMBER above zero'),
        ("exchange-rates", "CNY=0.1,CNY=0.2", '"CNY" has two rates'),
        ("repair-unhealthy-limit", "9" * 5000, "is neither a number of nodes nor a share"),
        ("repair-conditions", "GPUFault=True:0s", "a node would be replaced at once"),
        ("leader-election-name", "Not A Name", "must be a name of a Kubernetes object"),
        ("leader-election-namespace", "a.b", "must be the name of a namespace"),
    ],
)
@pytest.mark.parametrize("by_flag", [True, False], ids=["flag", "variable"])
def test_a_text_with_a_form_that_it_does_not_have_stops_the_start(flag, text, message, by_flag):
    option = next(option for option in OPTIONS if option.flag == flag)
    source = f"--{flag}" if by_flag else option.env

    with pytest.raises(SettingsError, match=re.escape(message)) as error:
        load_settings(*given_as(option, text, by_flag=by_flag))

    assert str(error.value).startswith(f"{source}: ")


@pytest.mark.parametrize(
    ("variable", "text", "field", "warning"),
    [
        ("KUBE_CLIENT_QPS", "0", "kube_client_qps", "a whole number of 1 or more"),
        ("KUBE_CLIENT_QPS", "9" * 30, "kube_client_qps", "a whole number of 1 or more"),
        ("KUBE_CLIENT_BURST", "-3", "kube_client_burst", "a whole number of 1 or more"),
        ("METRICS_PORT", "70000", "metrics_port", "a whole number from 0 to 65535"),
        ("HEALTH_PROBE_PORT", "", "health_probe_port", "a whole number from 0 to 65535"),
        ("ENABLE_PROFILING", "yes", "enable_profiling", "true or false"),
        ("BATCH_MAX_DURATION", "-1s", "batch_max_duration", "a duration such as 90s or 1h30m"),
        ("CPU_REQUESTS", "2 cores", "cpu_requests", "a whole number"),
        ("MEMORY_LIMIT", "1Gi", "memory_limit", "a whole number"),
    ],
)
def test_an_unreadable_variable_of_the_reference_keeps_the_default_and_warns(
    variable, text, field, warning
):
    """The warning names variable and value, what is allowed and what is used."""
    settings = load_settings([], {variable: text})

    default = getattr(Settings(), field)
    shown = value_text(default)
    (result,) = settings.warnings
    assert getattr(settings, field) == default
    assert result.startswith(f"{variable}: must be {warning}")
    assert result.endswith(f', not "{text}"; the default {shown} is used')


def test_the_same_value_in_a_flag_of_the_reference_stops_the_start():
    with pytest.raises(SettingsError, match="--kube-client-qps: must be a whole number of 1"):
        load_settings(["--kube-client-qps=0"], {})


def test_cpu_requests_of_zero_or_less_warn_and_use_the_default():
    for arguments, environment in ((["--cpu-requests=0"], {}), ([], {"CPU_REQUESTS": "-50"})):
        settings = load_settings(arguments, environment)
        (warning,) = settings.warnings
        assert settings.cpu_requests == 1000
        assert warning.endswith("is not above zero; 1000 is used")


def test_all_options_that_cannot_be_read_are_named_at_once():
    with pytest.raises(SettingsError) as error:
        load_settings(["--launch-timeout=0s"], {"PAUSE_DISRUPTION": "yes", "NODE_FEE": "much"})

    for source in ("--launch-timeout", "PAUSE_DISRUPTION", "NODE_FEE"):
        assert f"{source}: must be" in str(error.value)


def test_settings_that_are_fine_give_no_warning():
    assert load_settings([], {"MAX_NODES_TOTAL": " 50 ", "KUBE_CLIENT_QPS": "20"}).warnings == ()


@given(
    flag=st.sampled_from(["max-nodes-total", "launches-per-minute"]),
    text=NUMBER_LIKE,
    by_flag=st.booleans(),
)
@with_examples(100)
def test_no_text_makes_a_limit_of_ours_another_one(flag, text, by_flag):
    """A limit is the number that was written, or the start is refused: never silently none."""
    option = OURS[flag]
    try:
        settings = load_settings(*given_as(option, text, by_flag=by_flag))
    except SettingsError as error:
        complaints = str(error)
    else:
        complaints = ""
        assert ASCII_WHOLE.fullmatch(text.strip())
        assert getattr(settings, option.field) == int(text.strip()) >= 0
    assert not complaints or f'"{text}"' in complaints


@given(text=NUMBER_LIKE, by_flag=st.booleans())
@with_examples(100)
def test_no_text_silently_lifts_the_pause_of_disruption(text, by_flag):
    option = OURS["pause-disruption"]
    try:
        settings = load_settings(*given_as(option, text, by_flag=by_flag))
    except SettingsError:
        return
    assert text in {"0", "1", "t", "f", "T", "F", "true", "false"} | {
        "True",
        "False",
        "TRUE",
        "FALSE",
    }
    assert settings.pause_disruption is (text[0] in "1tT")


@given(option=st.sampled_from(OPTIONS), text=NUMBER_LIKE, by_flag=st.booleans())
@with_examples(100)
def test_no_text_of_any_option_is_a_traceback(option, text, by_flag):
    """It is read, replaced by the default with a warning, or refused with one message."""
    try:
        settings = load_settings(*given_as(option, text, by_flag=by_flag))
    except SettingsError as error:
        complaints: tuple[str, ...] = (str(error),)
    else:
        complaints = settings.warnings
    assert all(option.env in text or option.flag in text for text in complaints)


def test_plugin_options_refuse_bad_variables_by_default():
    """Such as a variable that charts of a Karpenter provider set."""
    ours = SettingSpec(flag="--delay", env="DELAY", default=timedelta(seconds=1), help="Wait.")
    theirs = SettingSpec(flag="--share", env="SHARE", default=0.5, help="Share.", falls_back=True)
    specs = [ours, theirs]

    with pytest.raises(SettingsError, match=r'^DELAY: must be a duration .*, not "soon"$'):
        load_settings([], {"DELAY": "soon"}, plugin_options=specs)
    settings = load_settings([], {"SHARE": "nan"}, plugin_options=specs)

    assert settings.plugins["share"] == 0.5
    assert settings.warnings == ('SHARE: must be a number, not "nan"; the default 0.5 is used',)


def test_a_shared_option_falls_back_only_if_all_its_plugins_say_so():
    one = SettingSpec(flag="--share", env="SHARE", default=0.075, help="", falls_back=True)
    other = replace(one, default=0.065, falls_back=False)

    for specs in ([one, other], [other, one]):
        with pytest.raises(SettingsError, match=r"^SHARE: must be a number"):
            load_settings([], {"SHARE": "much"}, plugin_options=specs)


# -- gates -----------------------------------------------------------------------------------------


def test_unknown_gate_causes_a_warning_with_a_suggestion():
    settings = load_settings([], {"FEATURE_GATES": "NodeRepiar=true,Zzz=false"})

    assert settings.warnings == (
        'FEATURE_GATES: there is no gate "NodeRepiar"; did you mean NodeRepair?',
        'FEATURE_GATES: there is no gate "Zzz"; it has no effect',
    )


def test_an_existing_gate_causes_no_warning():
    names = REFERENCE["feature-gates"].default.replace("=true", "").replace("=false", "").split(",")
    text = ",".join(f"{name}=true" for name in names)
    assert "NodeOverlay" in names
    assert load_settings([], {"FEATURE_GATES": text}).warnings == ()


# -- options that change nothing -------------------------------------------------------------------


@pytest.mark.parametrize("by_flag", [True, False], ids=["flag", "variable"])
def test_requests_for_devices_are_ignored_unless_that_is_switched_off(by_flag):
    option = REFERENCE["ignore-dra-requests"]
    assert load_settings([], {}).ignore_dra_requests
    assert not load_settings(*given_as(option, "false", by_flag=by_flag)).ignore_dra_requests


@pytest.mark.parametrize(
    ("variable", "text"),
    [("KARPENTER_SERVICE", "karpenter"), ("DISABLE_CONTROLLER_WARMUP", "true")],
)
def test_an_option_that_changes_nothing_says_so_when_it_is_given(variable, text):
    (warning,) = load_settings([], {variable: text}).warnings
    assert warning.startswith(f"{variable}: has no effect: ")
    assert load_settings([], {}).warnings == ()


def test_every_setting_has_a_reader():
    """A field of the settings that no module reads is an option that does nothing."""
    package = Path(karpenter_core.__file__).parent
    sources = "\n".join(
        path.read_text(encoding="utf-8")
        for path in package.rglob("*.py")
        if "cli" not in path.parts and path.name not in {"settings.py", "option_values.py"}
    )
    read = set(re.findall(r"\bsettings\.([a-z_]+)", sources))
    effective_fields = {option.field for option in OPTIONS if not option.without_effect}
    loaded_before = {"providers"}  # read by selected_plugins, before there are settings

    assert effective_fields - read - loaded_before == set()
    assert not {option.field for option in OPTIONS if option.without_effect} & read
