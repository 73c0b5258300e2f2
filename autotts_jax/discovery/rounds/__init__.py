"""A round of the loop: heats of programs, and files that play sealed."""
