"""When the parameters of a test are played."""

import pytest


def mark_for(name, slow, quick=()):
    """The mark of one that is played always, before a change lands that reaches it, or else nightly."""
    if name in quick:
        return ()
    return pytest.mark.slow if name in slow else pytest.mark.nightly
