"""Tests that every error code of the simulated Azure is graded."""

from __future__ import annotations

import ast
from pathlib import Path

import karpenter_simulated_azure
from karpenter_simulated_azure.fidelity import CODES, Evidence

PACKAGE = Path(karpenter_simulated_azure.__file__).parent


def codes_of(path):
    """The codes that a module raises: the first argument of an error, if it is written out."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {
            "ArmFault",
            "CloudError",
        }:
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant):
                yield first.value


def test_every_code_of_the_package_is_graded():
    raised = {code for path in PACKAGE.glob("*.py") for code in codes_of(path)}

    assert {"SubnetIsFull", "SubscriptionNotFound"} <= raised
    assert raised - set(CODES) == set()


def test_codes_that_karpenter_handles_are_confirmed():
    assert CODES["ZonalAllocationFailed"] is Evidence.CONFIRMED
    assert CODES["NicInUse"] is Evidence.UNVERIFIED
