"""What was recorded: probe matrices, answer encodings, branch orders, file formats, embedded data."""
