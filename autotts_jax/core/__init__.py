"""What an episode is: state, cost, votes, the branch pool, the controller contract, rollouts, stepping."""
