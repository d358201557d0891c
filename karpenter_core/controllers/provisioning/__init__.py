"""Provisions NodeClaims for pending pods."""
