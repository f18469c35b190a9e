"""`python -m seedzero` is `seedzero`."""

from seedzero.cli import main as commands

if __name__ == "__main__":
    commands.program()
