"""A static site of a whole history: a page of all cases, one for each case, one for each commit."""
