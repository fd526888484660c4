"""What `attnperf report` does: a file per mode, imported only in that mode."""

from __future__ import annotations

MODES = {
    "": "showing.show_runs",
    "--by stage": "by_stage.show_stages",
    "--by step": "by_step.show_steps",
    "--out": "merging.merge_results",
    "--comment": "commenting.post_comment",
}
"""Option that asks for a mode, '' for none -> file and function of the parsed options that returns the exit status."""
