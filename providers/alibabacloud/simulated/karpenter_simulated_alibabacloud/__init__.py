"""The simulated Alibaba Cloud: ECS, VPC and ACK over HTTP, with stock, prices, time and faults."""
