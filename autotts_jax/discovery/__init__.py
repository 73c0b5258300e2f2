"""Controllers that nobody wrote: the space of programs, proposers, the judge, the archive, the loop."""
