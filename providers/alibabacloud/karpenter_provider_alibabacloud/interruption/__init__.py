"""What Alibaba Cloud announces about instances: spot ones taken back, system events, ones that stop."""
