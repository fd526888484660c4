"""The samples of cases, given to pytest-benchmark."""
