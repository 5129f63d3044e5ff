"""The parts of gpu.py: each file has `measure(setting)`, which yields names and values of figures one after another."""
