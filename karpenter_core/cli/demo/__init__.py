"""`karpenter demo`: a demonstration with a real controller."""
