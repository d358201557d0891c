"""AKS machines of Karpenter's Azure provider: listing, termination, drift.

Karpenter's own provider for Azure has left them.
"""
