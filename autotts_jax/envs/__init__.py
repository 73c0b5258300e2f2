"""The decision process as environments to learn in: WidthDepth, rounds, observations, rewards, Gymnasium."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
