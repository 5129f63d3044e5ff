"""What runs of a program show: what depends on what, which data are alike, what an error means."""
