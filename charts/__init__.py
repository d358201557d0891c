"""Helm charts, and what generates parts of them."""
