"""Runs a program in forked processes: up to its first training step, and again as a probe requires."""
