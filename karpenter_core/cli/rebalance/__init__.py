"""The what-if of `plan --rebalance`: disruption passes, one after another."""
