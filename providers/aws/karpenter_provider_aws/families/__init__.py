"""AMI families: devices, pod density, images and user data."""
