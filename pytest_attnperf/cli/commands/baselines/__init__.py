"""`attnperf baselines`: what is done with stored baselines besides recording them."""

GROUP = "every day"
ORDER = 50
SUMMARY = "check | accept | merge: what is done with stored baselines"
DESCRIPTION = "Checks the stored baselines, accepts an intended change into them, or merges those of two branches."
EPILOG = """pytest --update-baselines records them; docs/baselines.md says when.

examples:
  attnperf baselines check
  attnperf baselines accept CASE --reason "exact softmax, issue 41"
  attnperf baselines merge --install
"""
