"""Plans and records without changing anything, for `karpenter run --observe`."""
