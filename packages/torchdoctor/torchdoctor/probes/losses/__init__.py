"""Defects of losses."""
