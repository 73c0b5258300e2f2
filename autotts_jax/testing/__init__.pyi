from .controllers import check_controller
from .engines import check_engine
from .environments import check_functional_env

__all__ = [
    "check_controller",
    "check_engine",
    "check_functional_env",
]
