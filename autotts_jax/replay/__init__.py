"""Probe matrices: the arrays, their file formats, answer encodings and resampling protocols."""
