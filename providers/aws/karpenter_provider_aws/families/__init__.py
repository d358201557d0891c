"""What differs between the AMI families: devices, pod density, images of aliases, user data."""
