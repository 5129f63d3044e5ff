"""The command line: python -m torchdoctor."""

from torchdoctor.cli import main

if __name__ == "__main__":
    main()
