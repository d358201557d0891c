"""Access to Kubernetes: transport, informers, the writer, Events, the lease."""
