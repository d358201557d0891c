"""`karpenter snapshot`: saves a cluster to a file for offline commands."""
