"""Writes the contents of the dashboard from the view of `karpenter top` and the explanations."""
