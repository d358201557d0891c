"""`karpenter convert`: writes older manifests and node groups as today's NodePools and NodeClasses."""
