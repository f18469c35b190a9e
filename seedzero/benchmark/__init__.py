"""Measurements of the parts, each against what bounds it. `seedzero benchmark PART` runs them."""
