"""Solves packing problems in numbers: covering, knapsacks, patterns."""
