"""Who judges an idea before it is executed, and whether that is worth anything."""
