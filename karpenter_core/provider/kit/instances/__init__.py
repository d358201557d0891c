"""Looks after launched instances: finds, lists, terminates and tags them, and detects drift."""
