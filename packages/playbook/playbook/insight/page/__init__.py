"""The frame of the pages that Playbook writes; their style sheet is in `playbook.pages`."""
