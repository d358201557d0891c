"""What a NodeClass refers to in AWS, found by its selector terms."""
