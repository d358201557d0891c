"""What makes a machine join the cluster: ACK's script, the kubelet's settings, users' own text."""
