"""What executes the plans."""
