"""Conversions of node groups to NodePools and AKSNodeClasses, for `karpenter convert`."""
