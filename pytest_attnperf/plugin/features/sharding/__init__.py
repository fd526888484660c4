"""`--attnperf-shard`: one of several parts of the selected cases, alike in every session that has another part."""
