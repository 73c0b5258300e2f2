"""Checks that users run on their own controllers, environments and engines."""
