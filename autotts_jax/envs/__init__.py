"""The decision process over probe matrices: state, cost, the branch pool, rollouts."""
