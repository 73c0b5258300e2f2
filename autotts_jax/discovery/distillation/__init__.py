"""Distillation: programs that decide as a learned policy does."""
