"""The file format of `karpenter snapshot`: header, instance types, objects."""
