"""`karpenter convert`: node groups to NodePools and AKSNodeClasses."""
