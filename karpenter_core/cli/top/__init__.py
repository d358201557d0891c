"""`karpenter top`: nodes, pending pods and costs of a cluster at a glance."""
