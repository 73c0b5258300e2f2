"""Critics, which judge candidates before they are executed, and how well they have done so."""
