"""Defects of data and loaders."""
