"""What people compare: evaluations, tables, frontiers, reports, traces."""
