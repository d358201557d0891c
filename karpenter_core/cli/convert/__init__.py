"""`karpenter convert`: older manifests and node groups to today's NodePools.

NodeClasses are written too.
"""
