"""`karpenter snapshot`: one file that holds a cluster for every offline command."""
