"""Attention of prompts, chunks and single tokens over a paged cache, in one launch."""
