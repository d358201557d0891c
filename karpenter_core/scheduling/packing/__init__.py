"""Packing as numbers only: covering programs, fills, knapsacks, patterns, bounds."""
