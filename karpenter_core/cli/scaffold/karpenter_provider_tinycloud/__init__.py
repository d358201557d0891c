"""A provider for karpenter-core: machines of tinycloud."""
