"""The table of typed hooks agrees with the hookspecs and the contract's page."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from karpenter_core.errors import CloudProviderError, PluginError
from karpenter_core.provider import hookspecs
from karpenter_core.provider.contract import SettingSpec
from karpenter_core.provider.host import hooks
from karpenter_core.provider.host.hooks import HOOKS
from karpenter_core.provider.host.manager import load_plugins
from karpenter_core.provider.markers import PROJECT, hookimpl

PAGE = (Path(__file__).parents[2] / "docs" / "provider-contract.md").read_text()
SPECS = {name: spec for name, spec in vars(hookspecs).items() if name.startswith(PROJECT + "_")}
BY_NAME = {hook.name: hook for hook in HOOKS}


def test_table_has_each_hook_once_and_in_the_order_of_the_hookspecs():
    assert [hook.name for hook in HOOKS] == list(SPECS)
    constants = [value for value in vars(hooks).values() if isinstance(value, hooks.Hook)]
    assert [hook.name for hook in constants] == list(SPECS)


@pytest.mark.parametrize("name", SPECS)
def test_hook_has_the_arguments_of_its_hookspec(name):
    (constant,) = [key for key, value in vars(hooks).items() if value is BY_NAME[name]]
    request = re.search(r"\[(\w+), ", hooks.__annotations__[constant])[1]
    arguments = list(getattr(hooks, request).__annotations__)
    assert arguments == list(inspect.signature(SPECS[name]).parameters)


@pytest.mark.parametrize("name", SPECS)
def test_each_hook_returns_the_type_of_its_hookspec(name):
    """Nothing, a text, one value of the annotated type, or many."""
    promised = SPECS[name].__annotations__["return"]
    answer, optional = BY_NAME[name].answer, False
    if isinstance(answer, hooks.OptionalAnswer):
        answer, optional = answer.answer, True
    match answer:
        case hooks.NoAnswer():
            assert promised == "None"
        case hooks.ReasonAnswer():
            assert promised == "str | None"
        case hooks.SingleAnswer(result_type):
            assert promised == result_type.__name__ + (" | None" if optional else "")
        case hooks.PluralAnswer():
            assert promised.startswith("Sequence[")


def test_hooks_of_all_plugins_equal_those_of_pluggy():
    asked = {name for name, spec in SPECS.items() if not spec.karpenter_spec["firstresult"]}
    assert {hook.name for hook in HOOKS if hook.open} == asked


def test_fenced_hooks_are_those_of_the_contracts_page():
    (rule,) = re.findall(
        r"^- \*\*Lease\.\*\* The core calls hooks that change the cloud only .*?(?=^- )",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
    assert {hook.name for hook in HOOKS if hook.fenced} == set(re.findall(r"karpenter_\w+", rule))


def test_hooks_for_any_plugin_are_those_of_the_contracts_page():
    sections = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
    said = {re.match(r"`(\w+)", each)[1] for each in sections if "Open to every plug-in" in each}
    assert {hook.name for hook in HOOKS if hook.any_plugin} == said


def test_measured_methods_are_distinct():
    """Two hooks under one name would be one series."""
    names = [hook.measured_as for hook in HOOKS if hook.measured_as]
    assert sorted(names) == sorted(set(names)) == [
        "Create", "Delete", "Get", "GetInstanceTypes", "IsDrifted", "List",
    ]  # fmt: skip


def read(hook, answer, **request):
    return hook.read(answer, request=request, where='plug-in "web"')


def test_an_answer_for_each_item_is_counted():
    assert read(hooks.DETECT_DRIFT, [None, None], node_claims="ab", node_class=None) == (None, None)
    with pytest.raises(CloudProviderError) as error:
        read(hooks.DETECT_DRIFT, [None], node_claims="ab", node_class=None)
    words = 'plug-in "web": karpenter_detect_drift returned 1 outcomes for 2 items'
    assert str(error.value) == words


@pytest.mark.parametrize(
    ("hook", "answer", "words"),
    [
        (hooks.LIST_INSTANCES, 3, "karpenter_list_instances must return InstanceListing, not 3"),
        (hooks.CHECK, None, "karpenter_check must return a list, not None"),
        (hooks.CHECK, ["x"], "karpenter_check must return Finding for each item, not 'x'"),
    ],
)
def test_an_answer_of_another_type_is_refused(hook, answer, words):
    with pytest.raises(CloudProviderError) as error:
        read(hook, answer)
    assert str(error.value) == f'plug-in "web": {words}'


def test_an_optional_answer_may_be_none():
    assert read(hooks.POLL_INTERRUPTIONS, None) is None
    assert read(hooks.POLL_INTERRUPTIONS, []) == ()


def test_of_a_hook_open_to_all_one_answer_counts():
    assert hooks.VETO_CANDIDATE.single(["a reason"]) == "a reason"
    assert hooks.VETO_CANDIDATE.single([]) is None
    assert hooks.CHECK.single(["all"]) == ["all"]


@pytest.mark.parametrize("answer", ["zone", [SettingSpec, 3]])
def test_settings_that_are_none_name_the_plugin(answer):
    class Odd:
        @hookimpl
        def karpenter_add_settings(self):
            return answer

    with pytest.raises(PluginError, match=r'plug-in "odd".*karpenter_add_settings must return'):
        load_plugins(entry_points=(), extra={"odd": Odd()}).settings()
