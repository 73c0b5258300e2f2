"""The results of a discovery run: tables, columns, pictures."""
