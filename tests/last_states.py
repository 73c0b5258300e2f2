"""Where a learned policy stands at the ends of episodes."""

import functools

import jax
import jax.numpy as jnp

from autotts_jax.core import ReplayPool, StopReason
from autotts_jax.core.stepping import view_of


def last_states(policy, matrix, table, questions):
    """What the policy remembers and sees at the end of an episode on each question."""
    matrix = jax.tree.map(jnp.asarray, matrix)

    @jax.jit
    def play(order, question):
        def look(carry):
            memory, action = policy.act(carry[0], carry[1].view())
            ends = action.stop != StopReason.RUNNING
            stays = functools.partial(jnp.where, ends)
            return memory, jax.tree.map(stays, carry[1], carry[1].step(action)), ends

        empty = ReplayPool.begin(matrix, question, order)
        start = policy.init(empty.view()), empty, jnp.bool_(False)
        return jax.lax.while_loop(lambda carry: ~carry[2], look, start)

    ends = [play(order, question) for order, question in zip(table, questions, strict=True)]
    return [(memory, view_of(pool)) for memory, pool, _ in ends]
