"""What a run does beside judging, each mode an object of its own, loaded where it is on."""
