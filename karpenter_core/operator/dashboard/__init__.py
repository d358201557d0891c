"""Serves the dashboard: a read-only web page of the cluster (`--dashboard-port`)."""
