"""Tests the findings of `karpenter doctor` about Azure, through the SDK and the simulated Azure."""

from __future__ import annotations

import pytest

from karpenter_core.provider.contract import Severity
from karpenter_provider_azure.arm.client import ArmClient
from karpenter_provider_azure.arm.errors import ArmError
from karpenter_provider_azure.catalogue.quotas import Quota
from karpenter_provider_azure.credentials import CappedCredential
from karpenter_provider_azure.doctor import ProviderDoctor, quota_findings
from karpenter_provider_azure.network.security_groups import SecurityGroupReader
from providers.azure.tests.arm.values import settings_for
from providers.azure.tests.fake_arm import FakeArm, HandClock
