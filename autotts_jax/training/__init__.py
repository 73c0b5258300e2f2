"""How a network comes to decide: imitation, vote weights, evolution, PPO, and the run."""
