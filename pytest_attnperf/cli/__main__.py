"""`python -m pytest_attnperf.cli` is the command `attnperf`."""

from pytest_attnperf.cli.main import main

raise SystemExit(main())
