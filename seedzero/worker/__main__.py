"""`python -m seedzero.worker`."""

from seedzero.core import exit_codes, user_code
from seedzero.worker import process

user_code.serves.set(True)
exit_codes.leave(process.main())
