"""`karpenter convert`: node groups to NodePools and ECSNodeClasses."""
