"""`python -m seedzero.cli` is `seedzero`."""

import sys

from seedzero.cli import main

if __name__ == "__main__":
    sys.exit(main.main())
