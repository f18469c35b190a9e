"""Measures the speed of parts of the program, each against a bound.

`seedzero benchmark PART` prints the figures of the part's `run`. Its arguments, as far as a part takes them: a preset
("" for its default), settings by SECTION.KEY that override the preset's, and seconds to measure, for all rows
together. The figures are facts about the machine, medians over short alternating slices, and "rows".
"""
