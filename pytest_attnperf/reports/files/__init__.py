"""Writes and reads the files of a run: JSON, JUnit, Markdown, the journal."""
