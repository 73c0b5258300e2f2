"""The decision process as environments to learn in: WidthDepth, rounds, observations, rewards, Gymnasium."""
