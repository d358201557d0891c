"""A simulated cloud for karpenter-core: nodes without machines."""
