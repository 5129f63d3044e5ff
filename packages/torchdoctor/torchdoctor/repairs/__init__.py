"""Edits of the user's source, and the patches that a second review must pass."""
