"""The simulated Alibaba Cloud: ECS, VPC and ACK over HTTP, with faults."""
