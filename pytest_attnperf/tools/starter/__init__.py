"""What `attnperf init` writes into a repository."""
