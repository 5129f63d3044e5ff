"""Defects of layers."""
