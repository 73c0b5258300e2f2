"""What a run has come to: tables, columns, pictures."""
