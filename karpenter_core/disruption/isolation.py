"""Ask a disruption method although one of its candidates cannot be judged.

Nothing here runs while all is well. When a method fails, each of its candidates is judged alone;
those with which that fails are set aside, and the method is asked about the rest. A method that
fails all the same is left out of the look, so that the others are asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.method import Acceptance, MethodPlan
from karpenter_core.disruption.validation import Rejection, Verdict
from karpenter_core.state.machines import machine_ref

if TYPE_CHECKING:
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import Budgets, Method, Pass, Steps

__all__ = ["accepted_or_aside", "method_steps", "validation_steps"]

UNITS_PER_CANDIDATE: Final = 10


def accepted_or_aside(look: Pass, method: Method, candidate: Candidate) -> Acceptance:
    """Ask a method whether it is about a candidate; it is not about one it cannot judge."""
    try:
        return method.accept(candidate, look)
    except Exception as error:
        _set_aside(look, candidate, method, error)
        return Acceptance(accepted=False)


def method_steps(
    look: Pass, method: Method, candidates: tuple[Candidate, ...], budgets: Budgets
) -> Steps[MethodPlan]:
    """Ask a method what to do; candidates that cannot be judged are set aside."""
    try:
        return (yield from method.plan_steps(look, candidates, budgets))
    except Exception as error:
        first = error
    look.simulation.forget()
    sound = yield from _sound_steps(look, method, candidates, budgets)
    if look.effort.is_spent:
        return MethodPlan(is_cut_short=True)
    if len(sound) < len(candidates):
        look.simulation.forget()
        try:
            return (yield from method.plan_steps(look, sound, budgets))
        except Exception as error:
            first = error
    look.simulation.forget()
    for pool in {item.pool.name: item.pool for item in candidates}.values():
        look.failed.note(pool.ref, method.name, first)
    return MethodPlan()


def _sound_steps(
    look: Pass, method: Method, candidates: tuple[Candidate, ...], budgets: Budgets
) -> Steps[tuple[Candidate, ...]]:
    """Return the candidates with which a method alone does not fail."""
    sound: list[Candidate] = []
    for candidate in candidates:
        if look.effort.is_spent:
            break
        try:
            yield from method.plan_steps(look, (candidate,), budgets)
            # As the method left it: for thousands of candidates, a change for each takes too long.
            yield from look.simulation.prepare_steps(peaceful=None)
            look.simulation.evaluate((candidate,))
        except Exception as error:
            _set_aside(look, candidate, method, error)
        else:
            sound.append(candidate)
        yield UNITS_PER_CANDIDATE
    return tuple(sound)


def validation_steps(method: Method, command: Command, look: Pass) -> Steps[Verdict]:
    """Look at a command again; one that cannot be judged is given up."""
    try:
        return (yield from method.validate_steps(command, look))
    except Exception as error:
        for candidate in command.candidates:
            _set_aside(look, candidate, method, error)
        return Verdict(rejection=Rejection.SCHEDULING, failed=len(command.candidates))


def _set_aside(look: Pass, candidate: Candidate, method: Method, error: Exception) -> None:
    look.failed.note(machine_ref(candidate.machine), method.name, error)
    look.failed.note(candidate.claim.ref, method.name, error)
