"""Runs a program: in a copy of the process, until its first step, and again as a probe asks."""
