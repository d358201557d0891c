"""Machines of AKS that Karpenter's own provider for Azure has left: listing, termination, drift."""
