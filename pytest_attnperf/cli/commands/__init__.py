"""One file per command of attnperf."""
