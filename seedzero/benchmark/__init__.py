"""Speed measurements of the parts, each against a bound. `seedzero benchmark PART` prints the figures of its `run`.

Arguments: preset, "" for the part's default; settings by SECTION.KEY, over the preset's; seconds to measure, all rows
together and without compilation. Figures: facts of the machine, medians over short alternating slices, and "rows". A
ratio is a speed as a share of the peer's.
"""
