"""What can be bought, kept fresh."""
