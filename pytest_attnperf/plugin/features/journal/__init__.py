"""What a run has judged so far, on disk after every case, so that an interrupted one goes on."""
