"""Neural policies: the network, its actions, and the files that hold its parameters."""
