from .environments import check_functional_env

__all__ = [
    "check_functional_env",
]
