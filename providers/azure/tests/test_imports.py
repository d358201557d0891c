"""Tests what the packages of the provider import."""

import subprocess
import sys


def test_importing_the_core_imports_no_azure_module():
    code = (
        "import sys, karpenter_core.cli.main, karpenter_core.operator.wiring\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'azure']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
