"""Declares the metrics of the process, and the types that compute them."""
