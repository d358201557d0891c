"""The form of a file of `karpenter snapshot`: its header, its instance types, its objects."""
