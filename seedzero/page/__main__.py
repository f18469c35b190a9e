"""`python -m seedzero.page`: the process that thinks for the page; a request a line on standard input."""

from seedzero.page import thoughts

thoughts.serve()
