"""Speed measurements of the parts, each against its bound. `seedzero benchmark PART` runs them."""
