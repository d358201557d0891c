"""The life of an EC2NodeClass: resolution into status and conditions, validation, its end."""
