"""Conversions of older kinds to EC2NodeClasses of v1, for `karpenter convert`."""
