"""Keeps the number of nodes of static NodePools at their replicas."""
