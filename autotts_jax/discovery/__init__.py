"""New controllers: the space of programs, proposers, the judge, the archive, the loop."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
