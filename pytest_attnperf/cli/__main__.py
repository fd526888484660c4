"""`python -m pytest_attnperf.cli` is the command `attnperf`."""

from pytest_attnperf.cli.program import main

raise SystemExit(main())
