"""Requirements against installed versions, and what a failed import says."""

from __future__ import annotations

from importlib import metadata

import pytest

from seedzero.cli import installed
from seedzero.cli import main as commands

REQUIRED = [
    "jax<0.12,>=0.10",
    "gymnasium[atari]<2,>=1.4",
    "gymnasium[classic-control]<2,>=1.4",
    "wandb>=9; extra == 'w'",
]


@pytest.mark.parametrize(
    ("versions", "wrong"),
    [
        ({"jax": "0.10.2", "gymnasium": "1.4"}, []),
        ({"jax": "0.11.9rc1", "gymnasium": "1.10.0"}, []),
        ({"jax": "0.5.3", "gymnasium": "1.4.0"}, [("jax", "0.5.3", "<0.12,>=0.10")]),
        ({"jax": "0.12", "gymnasium": "2.0.0"}, [("jax", "0.12", "<0.12,>=0.10"), ("gymnasium", "2.0.0", "<2,>=1.4")]),
        ({"jax": "0.10"}, [("gymnasium", None, "<2,>=1.4")]),
    ],
)
def test_versions_outside_their_bounds_and_missing_packages_are_found_once(
    versions: dict[str, str], wrong: list[tuple[str, str | None, str]]
) -> None:
    assert installed.misfits(REQUIRED, versions.get) == wrong


@pytest.mark.parametrize(
    ("bounds", "meets"), [("==1.2.5", True), ("==1.2", False), ("!=1.2.5", False), (">1.2,<=1.2.5", True)]
)
def test_all_comparisons_hold(bounds: str, *, meets: bool) -> None:
    assert (installed.misfits([f"envpool ({bounds})"], lambda name: "1.2.5") == []) == meets


def _failing(*args: object) -> int:
    raise ImportError("cannot import name 'Format'")


def test_a_failed_import_names_the_packages_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "_run", _failing)
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRED)
    monkeypatch.setattr(metadata, "version", {"jax": "0.5.3", "gymnasium": "1.4.0"}.__getitem__)
    assert commands.main([]) == 1
    said = capsys.readouterr().err
    assert "jax 0.5.3 (needed: <0.12,>=0.10)" in said and said.endswith("-m pip install 'jax<0.12,>=0.10'\n")
    assert "'Format'" in said and "gymnasium" not in said


@pytest.mark.parametrize("required", [["jax>=0.1"], None])
def test_a_failed_import_for_another_reason_stays_as_it_is(
    required: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def requires(name: str) -> list[str]:
        if required is None:
            raise metadata.PackageNotFoundError
        return required

    monkeypatch.setattr(commands, "_run", _failing)
    monkeypatch.setattr(metadata, "requires", requires)
    with pytest.raises(ImportError, match="Format"):
        commands.main([])
