"""Making new probe matrices, and running controllers live: engines, probing, answers, resumable writing."""
