"""Papers from one call: their tables and figures on any data, beside what they have published."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
