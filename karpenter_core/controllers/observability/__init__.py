"""Publishes gauges of the cluster, and Events and metrics of conditions."""
