"""The command line: python -m example."""

from playbook import main

if __name__ == "__main__":
    main(__package__)
