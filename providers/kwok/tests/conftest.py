"""Let failing rules of the conformance kit show what they compared."""

import pytest

pytest.register_assert_rewrite("karpenter_core.testing.conformance")
