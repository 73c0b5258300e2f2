from .answering import Answer, LiveExecutor, answer
from .server import create_app, serve
from .settings import Settings

__all__ = [
    "Answer",
    "LiveExecutor",
    "Settings",
    "answer",
    "create_app",
    "serve",
]
