"""`karpenter demo`: a small play with a real controller."""
