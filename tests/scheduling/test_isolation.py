"""Parts of a problem that cannot be judged are set aside, and the rest is solved."""

from __future__ import annotations

import pytest

from karpenter_core.api.judgements import FailedJudgements, describe_failure
from karpenter_core.api.notices import ObjectRef
from karpenter_core.errors import BadInputError
from karpenter_core.scheduling import isolation, solve, written_plan
from karpenter_core.scheduling.isolation import solve_isolated
from karpenter_core.scheduling.journal import plan_decision
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.solve import solve as solved
from karpenter_core.testing.builders import (
    EPOCH,
    daemon,
    existing_node,
    node_pool,
    pod,
    pod_shape,
    problem,
)

ODD = {"odd": "yes"}


def odd_pod(name, **options):
    return pod(name, shape=pod_shape(labels=ODD, **options))


@pytest.fixture
def fails(monkeypatch):
    """Let compiling, or writing the plan down, fail for problems of which something holds."""

    def install(is_odd, *, step="compile_steps"):
        module = solve if step == "compile_steps" else written_plan
        genuine = getattr(module, step)

        def failing(first, *rest):
            asked = first if step == "compile_steps" else seen[-1]
            if is_odd(asked):
                raise ZeroDivisionError("no domains")
            return genuine(first, *rest)

        seen = []
        compiling = solve.compile_steps

        def noting(asked, *rest):
            seen.append(asked)
            return compiling(asked, *rest)

        if step == "compile_steps":
            monkeypatch.setattr(solve, step, failing)
        else:
            monkeypatch.setattr(solve, "compile_steps", noting)
            monkeypatch.setattr(module, step, failing)

    return install


def has_odd_pod(asked):
    return any(each.shape.labels == ODD for each in asked.pods)


def has_odd_guest(asked):
    return any(each.shape.labels == ODD for node in asked.nodes for each in node.pods)


def placed(plan):
    on_nodes = [each.name for pods in plan.existing.values() for each in pods]
    return sorted([*on_nodes, *(each.name for claim in plan.claims for each in claim.pods)])


@pytest.mark.parametrize("step", ["compile_steps", "place_steps", "emit_steps"])
def test_a_pod_that_cannot_be_judged_is_set_aside_and_the_others_are_placed(fails, step):
    """Wherever it fails; all pods of its kind go with it, and say why."""
    fails(has_odd_pod, step=step)
    pods = [pod(f"web-{n}") for n in range(5)] + [odd_pod("odd-1"), odd_pod("odd-2")]

    plan = solve_isolated(problem(pods), options=None)

    assert placed(plan) == [f"web-{n}" for n in range(5)]
    assert sorted(plan.unschedulable) == ["uid-default-odd-1", "uid-default-odd-2"]
    (message,) = {reason.message for reason in plan.unschedulable.values()}
    assert "ZeroDivisionError: no domains (test_isolation.py:" in message
    assert {item.regarding.kind for item in plan.set_aside} == {"Pod"}


def test_every_kind_of_invalid_pod_is_reported(fails):
    """Each by itself."""
    fails(has_odd_pod)
    shapes = [{"cpu": str(n)} for n in (1, 2, 3)]
    pods = [odd_pod(f"odd-{n}", **shape) for n, shape in enumerate(shapes)]
    pods += [pod(f"web-{n}", cpu=str(n)) for n in (1, 2, 3)]

    plan = solve_isolated(problem(pods), options=None)

    assert placed(plan) == ["web-1", "web-2", "web-3"]
    assert len(plan.unschedulable) == 3


def test_isolation_is_deterministic(fails):
    """In every order of the pods."""
    fails(has_odd_pod)
    pods = [pod(f"web-{n}", cpu=str(n)) for n in (1, 2, 3)] + [odd_pod("odd")]

    first, second = (
        solve_isolated(problem(pods), options=None),
        solve_isolated(problem(pods[::-1]), options=None),
    )

    assert placed(first) == placed(second)
    assert first.set_aside == second.set_aside


def test_a_node_whose_pods_cannot_be_judged_is_set_aside(fails):
    """Also when it fails only together with pods: of many victims and one culprit, the culprit."""
    fails(lambda asked: has_odd_guest(asked) and bool(asked.pods))
    guest = pod("guest", shape=pod_shape(labels=ODD), node_name="b", phase="Running")
    nodes = [existing_node("a", available={"cpu": "8", "memory": "8Gi"}),
             existing_node("b", bound=(guest,), available={"cpu": "8", "memory": "8Gi"})]  # fmt: skip
    pods = [pod(f"web-{n}", cpu=f"{n}00m") for n in (1, 2, 3, 4)]

    plan = solve_isolated(problem(pods, nodes=nodes), options=None)

    assert placed(plan) == ["web-1", "web-2", "web-3", "web-4"]
    assert set(plan.existing) == {"a"}
    assert [(i.regarding.kind, i.regarding.name) for i in plan.set_aside] == [("Node", "b")]


@pytest.mark.parametrize("kind", ["NodePool", "DaemonSet", "Node"])
def test_an_object_that_fails_without_any_pod_is_set_aside_too(fails, kind):
    """A pool, a DaemonSet, a node."""
    names = {
        "NodePool": lambda asked: {each.name for each in asked.pools},
        "DaemonSet": lambda asked: {each.name for each in asked.daemons},
        "Node": lambda asked: {each.name for each in asked.nodes},
    }[kind]
    fails(lambda asked: "odd" in {name.rpartition("/")[2] for name in names(asked)})
    facts = problem(
        [pod("web")],
        pools=[node_pool("good"), node_pool("odd")],
        nodes=[existing_node("odd")],
        daemons=[daemon("odd")],
    )

    plan = solve_isolated(facts, options=None)

    assert placed(plan) == ["web"]
    assert [(i.regarding.kind, i.regarding.name) for i in plan.set_aside] == [(kind, "odd")]
    entry = plan_decision(plan, facts, options=SolveOptions(), id="1", cause="test", at=EPOCH)
    (obstacle,) = entry.obstacles
    assert (obstacle.kind, obstacle.reason, obstacle.names) == (kind, "JudgementFailed", ("odd",))


def test_a_persistent_failure_is_raised(fails):
    """Nothing is to blame in the problem."""
    fails(lambda _: True)

    with pytest.raises(ZeroDivisionError):
        solve_isolated(problem([pod("web")]), options=None)


def test_isolation_changes_nothing_without_a_fault(monkeypatch):
    """The plan is that of `solve`, and nothing is solved twice."""
    monkeypatch.setattr(isolation, "isolate_steps", None)
    facts = problem([pod(f"web-{n}") for n in range(20)])

    plan, same = solve_isolated(facts, options=None), solved(facts)

    assert [claim.instance_types for claim in plan.claims] == [
        claim.instance_types for claim in same.claims
    ]
    assert plan.set_aside == ()


# -- records -----------------------------------------------------------------------------------


def test_an_expected_error_is_shown_as_its_message_and_any_other_with_its_place():
    """No more than a line."""
    assert describe_failure(BadInputError("spec.x: no")) == "spec.x: no"
    assert describe_failure(KeyError("zone")) == "KeyError: 'zone'"
    assert describe_failure(StopIteration()) == "StopIteration"


def test_a_judgement_that_fails_ends_its_block_alone():
    """An object is noted once for each step; what is no error passes through."""
    failed = FailedJudgements()
    ref = ObjectRef(api_version="v1", kind="Node", name="web")
    for _ in range(2):
        with failed.judging(ref, "disruption"):
            raise ValueError("odd")
    with failed.judging(ref, "scheduling"):
        pass
    with pytest.raises(KeyboardInterrupt), failed.judging(ref, "disruption"):
        raise KeyboardInterrupt

    (item,) = failed.found
    assert item.notice.reason == "JudgementFailed"
    assert (
        "skipped in disruption, because the decision about it failed: ValueError: odd"
        in item.notice.message
    )
