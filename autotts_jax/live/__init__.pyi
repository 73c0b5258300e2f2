from .answering import Answer, LiveExecutor, Votes, answer
from .server import create_app, serve
from .settings import Settings

__all__ = [
    "Answer",
    "LiveExecutor",
    "Settings",
    "Votes",
    "answer",
    "create_app",
    "serve",
]
