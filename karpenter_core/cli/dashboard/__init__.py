"""Makes the dashboard's content from `karpenter top` and explanations."""
