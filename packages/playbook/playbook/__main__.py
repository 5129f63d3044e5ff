"""The command line: python -m playbook."""

from playbook import main

if __name__ == "__main__":
    main()
