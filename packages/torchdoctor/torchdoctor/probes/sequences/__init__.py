"""Defects of models that read sequences."""
