from .answering import Answer, LiveExecutor, Votes, answer
from .server import create_app, serve
from .settings import ServerSettings

__all__ = [
    "Answer",
    "LiveExecutor",
    "ServerSettings",
    "Votes",
    "answer",
    "create_app",
    "serve",
]
