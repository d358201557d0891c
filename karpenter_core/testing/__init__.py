"""Test kit for providers: builders, a simulated cluster, conformance tests."""
