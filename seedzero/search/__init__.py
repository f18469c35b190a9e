"""Tree search over a learned model, batched, on the device."""

from seedzero.search.mctx_search import search
from seedzero.search.types import Prediction, RecurrentFn, Result, Root

__all__ = ["Prediction", "RecurrentFn", "Result", "Root", "search"]
