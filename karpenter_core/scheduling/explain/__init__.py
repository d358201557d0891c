"""Explains why a pod found no place, as structured reasons for each NodePool."""
