"""What all tests share: one thread a process, Ctrl-C that is heard, and hypothesis without a clock or a dice."""

from __future__ import annotations

import os
import signal

import hypothesis
import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Set up before torch is imported: the models are so small that threads only get into each other's way."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # or commands that tests start would ignore it, too
    hypothesis.settings.register_profile("glassformer", deadline=None, derandomize=True, database=None, max_examples=30)
    hypothesis.settings.load_profile("glassformer")
