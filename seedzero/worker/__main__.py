"""`python -m seedzero.worker`."""

import sys

from seedzero.worker import process

sys.exit(process.main())
