"""Speed measurements of the parts, each against a bound. `seedzero benchmark PART` prints them."""
