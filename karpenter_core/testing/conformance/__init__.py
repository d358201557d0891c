"""The rules of the provider contract, as tests for any provider.

There is one test for each rule of `docs/provider-contract.md` that can be tested from outside. For
an installed provider that declares its `ConformanceSubject` in the entry-point group
`karpenter.testing`:

    pytest --pyargs karpenter_core.testing.conformance --karpenter-provider=mycloud

Or inside a provider's own test module, with a fixture instead of the entry point:

    from karpenter_core.testing.conformance import *  # noqa: F403

    @pytest.fixture
    def subject() -> ConformanceSubject:
        return ConformanceSubject(name="mycloud", make=MyProvider, node_class=MyNodeClass(...))
"""

from __future__ import annotations

from karpenter_core.testing.conformance import (
    test_catalogue,
    test_drift,
    test_instances,
    test_interruption,
    test_launch,
    test_loading,
    test_node_class,
    test_troubles,
    test_upkeep,
    test_values,
)
from karpenter_core.testing.conformance.test_catalogue import *  # noqa: F403
from karpenter_core.testing.conformance.test_drift import *  # noqa: F403
from karpenter_core.testing.conformance.test_instances import *  # noqa: F403
from karpenter_core.testing.conformance.test_interruption import *  # noqa: F403
from karpenter_core.testing.conformance.test_launch import *  # noqa: F403
from karpenter_core.testing.conformance.test_loading import *  # noqa: F403
from karpenter_core.testing.conformance.test_node_class import *  # noqa: F403
from karpenter_core.testing.conformance.test_troubles import *  # noqa: F403
from karpenter_core.testing.conformance.test_upkeep import *  # noqa: F403
from karpenter_core.testing.conformance.test_values import *  # noqa: F403
from karpenter_core.testing.subject import CloudTrouble, ConformanceSubject

__all__ = ["CloudTrouble", "ConformanceSubject"]
__all__ += test_catalogue.__all__
__all__ += test_drift.__all__
__all__ += test_instances.__all__
__all__ += test_interruption.__all__
__all__ += test_launch.__all__
__all__ += test_loading.__all__
__all__ += test_node_class.__all__
__all__ += test_troubles.__all__
__all__ += test_upkeep.__all__
__all__ += test_values.__all__
