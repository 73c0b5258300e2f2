"""What people run: evaluations, traces, tables, pictures, and the command line."""
