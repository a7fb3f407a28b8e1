"""How long the output will be."""
