"""`python -m seedzero.interfaces.page`: the page's thinking process, which reads one request per line from standard input."""

from seedzero.interfaces.page import thoughts

thoughts.serve()
