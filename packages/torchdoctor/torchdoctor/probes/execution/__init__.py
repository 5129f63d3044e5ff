"""Defects of running: errors, devices, precision, speed and memory."""
