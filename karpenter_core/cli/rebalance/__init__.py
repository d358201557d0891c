"""The what-if of `karpenter plan --rebalance`: disruption passes, one after another."""
