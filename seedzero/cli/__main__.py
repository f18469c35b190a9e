"""`python -m seedzero.cli` is `seedzero`."""

from seedzero.cli import main

if __name__ == "__main__":
    main.program()
