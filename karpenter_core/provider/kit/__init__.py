"""Helpers that an author of a provider imports; the contract stands one level up."""
