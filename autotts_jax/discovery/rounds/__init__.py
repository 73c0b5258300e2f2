"""A round of the loop: rungs of programs, and files that play sealed."""
