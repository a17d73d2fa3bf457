"""Telling the C library to keep its memory: agreed to on glibc, left alone elsewhere, harmless to numbers."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from glassformer.model.fast.device import keep_large_blocks

CODE = """
import torch
from glassformer.model.fast.device import keep_large_blocks
torch.manual_seed(0)
x = torch.randn(700, 700)
before = x @ x
agreed = [keep_large_blocks(), keep_large_blocks()]
print(agreed, torch.equal(before, x @ x))
"""


def test_it_is_agreed_to_and_changes_no_number() -> None:
    """In a process of its own: the setting lasts as long as the process."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    agreed = platform.libc_ver()[0] == "glibc"
    assert done.stdout.split("\n")[0] == f"{[agreed, agreed]} True"


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_large_blocks()


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_large_blocks()
