"""A karpenter-core provider for an imaginary REST cloud."""
