"""`karpenter doctor`: checks settings, clouds, CRDs, permissions and workloads."""
