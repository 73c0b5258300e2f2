"""Where probe matrices come from: engines, trajectories, answers, grading, a resumable store."""
