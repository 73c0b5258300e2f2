"""Learned controllers: networks, and the trainers that fit them."""
