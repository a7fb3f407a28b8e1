"""The points of a curve."""
