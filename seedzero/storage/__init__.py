"""The files of a run, on a disk or in a bucket."""
