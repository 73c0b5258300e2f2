"""What an episode is: state, cost, votes, the branch pool, the controller contract, rollouts, stepping."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
