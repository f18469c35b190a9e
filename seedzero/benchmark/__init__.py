"""Speed measurements of the parts, each against a bound. `seedzero benchmark PART` prints the figures of its `run`.

Arguments, where a part takes them: preset, "" for its default; settings by SECTION.KEY, over the preset's; seconds to
measure, all rows together. Figures: facts of the machine, medians over short alternating slices, and "rows".
"""
