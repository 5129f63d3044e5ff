"""What is said besides findings: practices read from the source, and tests to write."""
