"""The `karpenter` command."""
