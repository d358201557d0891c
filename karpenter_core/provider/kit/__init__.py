"""Helpers for authors of providers; the contract is one level up."""
