"""Tools for continuous integration: results as data, one comment on a pull request, one commit status."""
