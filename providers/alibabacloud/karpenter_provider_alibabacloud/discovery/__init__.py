"""What a NodeClass refers to, looked up in the cloud: vSwitches, security groups, images, the cluster."""
