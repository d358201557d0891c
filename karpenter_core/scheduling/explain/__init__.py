"""Explains why a pod is unschedulable, with a reason for each NodePool."""
