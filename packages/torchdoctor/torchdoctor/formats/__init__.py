"""A report as text, Markdown, JSON, SARIF and as tests."""
