"""What a run keeps: records of candidates, and transcripts of calls that were paid for."""
