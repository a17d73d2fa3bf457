"""Devices by name, and the name of the CPU."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch

from glassformer.errors import ConfigError
from glassformer.model.fast.device import cpu_name, find_device


def test_a_device_by_name() -> None:
    assert find_device("cpu") == torch.device("cpu")
    assert find_device("auto").type in ("cpu", "cuda", "mps")
    with pytest.raises(ConfigError, match="device=gpu: no such device; known: auto, cpu, cuda, mps"):
        find_device("gpu")


def test_a_device_that_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device=cuda is not available here"):
        find_device("cuda")


@pytest.mark.parametrize(
    ("text", "name"),
    [("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n", "Some CPU @ 2 GHz"), ("Features: x", "chip")],
)
def test_the_name_of_the_cpu(text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self, encoding: text)
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "chip")
    assert cpu_name() == name


def test_a_system_that_does_not_report_its_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Path, encoding: str) -> str:
        raise FileNotFoundError(str(self))

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr(platform, "processor", lambda: "chip")
    assert cpu_name() == "chip"
