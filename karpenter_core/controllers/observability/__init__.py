"""Controllers that only observe: gauges of the cluster, condition Events and metrics."""
