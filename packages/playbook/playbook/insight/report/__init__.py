"""The report of a run: `report.html` and `report.md`, from what the run left and what its training knew."""
