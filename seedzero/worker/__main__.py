"""`python -m seedzero.worker`."""

from seedzero.core import errors, user_code
from seedzero.worker import worker

user_code.serves.set(True)
errors.leave(worker.main())
