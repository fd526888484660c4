"""A Triton module that cannot be imported without a GPU."""

from __future__ import annotations

import triton

TARGET = triton.runtime.driver.active.get_current_target()
