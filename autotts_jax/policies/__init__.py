"""Controllers, and the released interface for programs."""
