from .answering import Answer, LiveExecutor, answer
from .server import Settings, create_app, serve

__all__ = [
    "Answer",
    "LiveExecutor",
    "Settings",
    "answer",
    "create_app",
    "serve",
]
