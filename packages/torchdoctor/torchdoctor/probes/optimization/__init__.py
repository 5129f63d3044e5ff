"""Defects of gradients, optimizers and schedules."""
