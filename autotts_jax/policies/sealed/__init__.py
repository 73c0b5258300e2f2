"""Sealed players: programs and controllers that nobody trusts, each in a process without gold."""
