"""What `attnperf report` does besides showing a run: a file per mode, imported only in that mode."""

from __future__ import annotations

MODES = {
    "--by stage": "by_stage.show_stages",
    "--by step": "by_step.show_steps",
    "--out": "merging.merge_results",
    "--comment": "commenting.post_comment",
}
"""Option that asks for a mode -> file and function, which takes the parsed options and returns the exit status."""
