"""Whom to evict, and how."""
