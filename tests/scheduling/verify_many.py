"""Solve very many random problems and verify every plan.

    .venv/bin/python tests/scheduling/verify_many.py --problems 10000 --seed 0 --jobs 2

Checks both packings with the independent verifier, that the default is never worse than first-fit,
and that the order of the input does not matter. Prints counts, and for each kind of mistake the
first seeds, one of them made small: problem, plan and what is wrong. `--features spread,volumes`
switches on only those, `--without` switches off; a failing seed is repeated by `--seed N
--problems 1` with the same features. `--wide` judges `wide_problem`s instead, whose options are drawn
too: each with those options, and with others of packing and of the list of instance types.
"""

# ruff: noqa: T201 - a program that reports

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from karpenter_core.scheduling.problem import PackingPolicy
from karpenter_core.scheduling.solve import solve
from tests.scheduling.plan_checks import FIRST_FIT, faults
from tests.scheduling.plan_dump import plan_text, problem_text
from tests.scheduling.shrinking import shrunk
from tests.scheduling.wide_checks import wide_faults
from tests.support.problems import ALL_FEATURES, ProblemFeature, seeded_problem
from tests.support.wide_problems import wide_options, wide_problem

SHOWN_TEXTS = 6
SHOWN_SEEDS = 12
SHOWN_LENGTH = 400


def main():
    arguments = _arguments()
    features = None if arguments.wide else _features(arguments)
    what = "everything at once" if features is None else _listed(features)
    print(f"{arguments.problems} problems from seed {arguments.seed} with {what}")
    seeds = range(arguments.seed, arguments.seed + arguments.problems)
    judge = partial(_judge, features=features, timeout=arguments.timeout)
    failing, counts, started = defaultdict(list), Counter(), time.monotonic()
    with Pool(arguments.jobs) as workers:
        judged = workers.imap_unordered(judge, seeds, chunksize=8)
        for done, (seed, kinds, numbers) in enumerate(judged, start=1):
            counts.update(numbers)
            for kind in kinds:
                failing[kind].append(seed)
            if done % 1000 == 0:
                bad = len({seed for of_kind in failing.values() for seed in of_kind})
                print(f"  {done} done, {bad} bad, {time.monotonic() - started:.0f} s", flush=True)
    _report(arguments, features, failing, counts)
    return 1 if failing else 0


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--features", default="", help=f"of {_listed(ALL_FEATURES)} (default all)")
    parser.add_argument("--wide", action="store_true", help="problems that use everything at once")
    parser.add_argument("--without", default="", help="features to leave out")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for one problem")
    parser.add_argument("--dumps", type=int, default=3, help="kinds of mistakes to show in full")
    return parser.parse_args()


def _features(arguments):
    named = frozenset(ProblemFeature(name) for name in arguments.features.split(",") if name)
    without = frozenset(ProblemFeature(name) for name in arguments.without.split(",") if name)
    return (named or ALL_FEATURES) - without


def _listed(features):
    return ",".join(sorted(features))


# -- one problem -----------------------------------------------------------------------------------


class TookTooLongError(Exception):
    """One problem used up its time."""


def _problem(seed, features):
    return wide_problem(seed) if features is None else seeded_problem(seed, features)


def _judge(seed, *, features, timeout):
    problem = _problem(seed, features)
    result = _faults(problem, timeout, _checks(seed, features))
    plan = None if result else solve(problem)
    numbers = Counter(
        problems=1,
        pods=len(problem.pods),
        placed=0 if plan is None else len(problem.pods) - len(plan.unschedulable),
        claims=0 if plan is None else len(plan.claims),
    )
    return seed, sorted({_kind(check, text) for check, text in result}), numbers


def _checks(seed, features):
    return faults if features is not None else partial(_wide_faults, options=wide_options(seed))


def _wide_faults(problem, *, options):
    """Return `(check, text)` for what is wrong with the plans that options like these lead to."""
    texts = []
    for packing in PackingPolicy:
        for most in {options.max_instance_types, 2}:
            chosen = replace(options, packing=packing, max_instance_types=most)
            check = f"{packing} of {most} types"
            plan = solve(problem, chosen)
            texts += [(check, text) for text in wide_faults(problem, plan, chosen)]
    return texts


def _faults(problem, timeout, checks):
    def stop(_signal, _frame):
        raise TookTooLongError(f"more than {timeout} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(timeout)
    try:
        return checks(problem)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return [("crash", f"{type(error).__name__}: {error} at {place}")]
    finally:
        signal.alarm(0)


def _kind(check, text):
    """Name the kind of a mistake: the text without what differs from problem to problem."""
    text = re.sub(r"\b(claim|node) \S+( \(\S+\))?: ", "", text)
    text = re.sub(r"(type-\d+: )|\b(pod|leaving|bound|node|pool)-\S+", "", text)
    text = re.sub(r"\S+\.(io|sh|com)/[\w.-]+", "KEY", text)
    text = re.sub(r"KEY(, KEY)+", "KEYS", text)
    text = re.sub(r" in \S+ (exceeds.*|\S+ would)|[\[({].*", "", text)
    text = re.sub(r"-?\d[\d.]*", "#", text)
    return f"{check}: {' '.join(text.split()[:9])}"


# -- the report ------------------------------------------------------------------------------------


def _report(arguments, features, failing, counts):
    bad = {seed for seeds in failing.values() for seed in seeds}
    print(", ".join(f"{number} {name}" for name, number in counts.items()))
    print(f"{len(bad)} problems with mistakes")
    kinds = sorted(failing.items(), key=lambda item: -len(item[1]))
    for kind, seeds in kinds:
        shown = " ".join(str(seed) for seed in sorted(seeds)[:SHOWN_SEEDS])
        print(f"{len(seeds):6} x {kind}\n         seeds {shown}")
    for kind, seeds in kinds[: arguments.dumps]:
        sizes = {seed: len(_problem(seed, features).pods) for seed in sorted(seeds)[:50]}
        _dump(kind, min(sizes, key=sizes.get), features, arguments.timeout)


def _dump(kind, seed, features, timeout):
    checks = _checks(seed, features)

    def shows(problem):
        return any(_kind(*fault) == kind for fault in _faults(problem, timeout, checks))

    problem = shrunk(_problem(seed, features), shows)
    rule = "=" * 100
    print(f"\n{rule}\n{kind}\nseed {seed}, made small; the whole problem again:")
    switches = "" if features == ALL_FEATURES else f" --features {_listed(features or ())}"
    if features is None:
        switches = " --wide"
    print(f"    tests/scheduling/verify_many.py --problems 1 --seed {seed}{switches}")
    for check, text in _faults(problem, timeout, checks)[:SHOWN_TEXTS]:
        print(f"! {check}: {text[:SHOWN_LENGTH]}")
    print(f"\n{problem_text(problem)}")
    if kind.startswith("crash") or features is None:
        return
    is_first_fit = kind.startswith(("first-fit", "shuffled first-fit"))
    plan = solve(problem, FIRST_FIT if is_first_fit else None)
    print(f"\n{plan_text(plan)}")


if __name__ == "__main__":
    sys.exit(main())
