"""Defects of validations and metrics."""
