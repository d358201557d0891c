"""`karpenter doctor`: checks settings, clouds, CRDs, RBAC and workloads."""
