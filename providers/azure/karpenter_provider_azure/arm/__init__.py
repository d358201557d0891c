"""Calls of Azure Resource Manager."""
