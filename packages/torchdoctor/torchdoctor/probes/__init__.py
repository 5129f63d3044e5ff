"""The probes: a file each, with the defects that it finds and its PROBE."""
