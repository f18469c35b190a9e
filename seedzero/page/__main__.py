"""`python -m seedzero.page`: the page's thinking process, which reads one request per line from standard input."""

from seedzero.page import thoughts

thoughts.serve()
