"""A simulated cloud for karpenter-core, whose nodes have no instances."""
