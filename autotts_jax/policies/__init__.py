"""Who decides: the published controllers, programs, policies for environments, neural networks."""
