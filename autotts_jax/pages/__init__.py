"""Pages: results as one HTML file that opens anywhere, without a network."""
