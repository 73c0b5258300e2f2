"""When the parameters of a test are played."""

import pytest


def mark_for(name, slow, quick=()):
    """Gives no mark where the name is among the quick ones, else that of the slow or of the nightly ones."""
    if name in quick:
        return ()
    return pytest.mark.slow if name in slow else pytest.mark.nightly
