"""The commit status that a required check looks at."""

from __future__ import annotations

import re

from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.ci.comments import Stamp
from pytest_attnperf.tools.ci.github import GitHub, understood
from pytest_attnperf.tools.ci.outcome import Conclusion

DESCRIPTION_LIMIT = 140
"""Characters that GitHub takes."""
_RUN = re.compile(r"\[run (\d+)\.(\d+)(, not measured)?\]$")


def put_status(
    github: GitHub,
    repo: str,
    stamp: Stamp,
    conclusion: Conclusion,
    counted: str,
    *,
    context: str,
    url: str = "",
    dry_run: bool = False,
) -> str:
    """Set the status of the stamp's commit, unless a newer run has set it; gives what was done in words.

    counted: the cases in words, foreign text. Raises GitHubError.
    """
    shown = _shown(github, repo, stamp.sha, context)
    why = stamp.superseded_by(shown) if shown is not None else ""
    if why:
        return f"left the status {context} as it is: {why.replace('the comment', 'it')}"
    said = f"{context} = {conclusion.state} on {stamp.sha[:12]}"
    if dry_run:
        return f"would set the status {said}"
    body = {"state": conclusion.state, "context": context, "description": description(conclusion, counted, stamp)}
    github.send("POST", f"repos/{repo}/statuses/{stamp.sha}", {**body, "target_url": url} if url else body)
    return f"set the status {said}"


def description(conclusion: Conclusion, counted: str, stamp: Stamp) -> str:
    """What stands beside the check; its end says which run it is of."""
    tail = f" [run {stamp.run}.{stamp.attempt}{'' if stamp.measured else ', not measured'}]"
    said = f"{conclusion.sentence}: {counted}" if counted else conclusion.sentence
    return one_line(said, DESCRIPTION_LIMIT - len(tail)) + tail


@understood()
def _shown(github: GitHub, repo: str, sha: str, context: str) -> Stamp | None:
    """The run that the newest status of this context is of; None where there is none."""
    for found in github.pages(f"repos/{repo}/commits/{sha}/statuses"):
        if found.get("context") == context:
            run = _RUN.search(str(found.get("description") or ""))
            return Stamp(sha, int(run.group(1)), int(run.group(2)), run.group(3) is None) if run else None
    return None
