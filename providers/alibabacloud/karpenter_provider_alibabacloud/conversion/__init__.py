"""Conversions of node groups to NodePools and ECSNodeClasses, for `karpenter convert`."""
