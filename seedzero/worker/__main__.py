"""`python -m seedzero.worker`."""

from seedzero.core import exit_codes
from seedzero.worker import process

exit_codes.leave(process.main())
