"""`karpenter simulate`: a workload on NodePools in simulated time."""
