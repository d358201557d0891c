"""An embedded cluster: API server, kubelets, scheduler and workloads in one process."""
