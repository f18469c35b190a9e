"""`python -m seedzero.interfaces.page`: the page's thinking process, which reads a request per line from stdin."""

from seedzero.interfaces.page import thoughts

thoughts.serve()
