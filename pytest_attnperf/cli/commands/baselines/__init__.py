"""`attnperf baselines`: what is done with stored baselines besides recording them."""

GROUP = "every day"
ORDER = 50
SUMMARY = "check | accept | merge | pool: what is done with stored baselines"
DESCRIPTION = (
    "Checks stored baselines, accepts an intended change, merges those of branches, or pools several machines."
)
EPILOG = """pytest --update-baselines records them; docs/baselines.md says when.

examples:
  attnperf baselines check
  attnperf baselines accept CASE --reason "exact softmax, issue 41"
  attnperf baselines merge --install
  attnperf baselines pool node1/results.json node2/results.json
"""
