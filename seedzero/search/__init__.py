"""Searches trees over a learned model, in batches, on the device."""

from seedzero.search.engine import search, sweep_widths, tree_bytes
from seedzero.search.search_forest import to_dot
from seedzero.search.selection import completed_q
from seedzero.search.types import Afterstate, ChanceFn, Prediction, RecurrentFn, Root, SearchConfig, Tree
from seedzero.search.types import SearchResult as Result

__all__ = [
    "Afterstate",
    "ChanceFn",
    "Prediction",
    "RecurrentFn",
    "Result",
    "Root",
    "SearchConfig",
    "Tree",
    "completed_q",
    "search",
    "sweep_widths",
    "to_dot",
    "tree_bytes",
]
