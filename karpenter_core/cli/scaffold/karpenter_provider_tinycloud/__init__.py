"""A karpenter-core provider for tinycloud."""
