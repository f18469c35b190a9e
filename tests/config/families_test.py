"""The table of families: what it says of packages, presets and settings is there."""

import dataclasses
import pkgutil

import pytest

from seedzero.config import families, presets, sections
from seedzero.core import env_ids, packages

OFFERS = [offer for family in families.FAMILIES for offer in family.offers]


def test_an_id_has_the_family_of_its_prefix():
    for family in families.FAMILIES:
        assert family.offers and all(families.of(offer.example) is family for offer in family.offers)
    assert families.of("chess:3").offers == () and families.of("").offers == ()


def test_all_families_are_listed_and_all_but_remote_are_made_here():
    assert sorted(family.prefix for family in families.LISTED) == sorted(family.prefix for family in families.FAMILIES)
    assert [family.prefix for family in families.FAMILIES if not family.make] == [env_ids.REMOTE]


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.prefix)
def test_what_a_row_names_is_there(family):
    assert all(callable(pkgutil.resolve_name(f"seedzero.envs.{name}")) for name in (family.make, family.check) if name)
    assert bool(family.check) == (":" in family.form)
    settings = {field.name for field in dataclasses.fields(sections.EnvConfig)}
    assert {*family.reads, *family.takes} <= settings
    for name in family.presets:
        assert families.of(presets.PRESETS[name].values["env.id"]) is family


def test_games_are_shown_slowly_and_emulators_as_fast_as_they_are_played():
    speeds = {family.prefix: family.frames_per_second for family in families.FAMILIES if family.make}
    assert speeds == {
        "catch": 5.0, "gym": 30.0, "python": 30.0, "atari": 15.0, "dmlab": 15.0, "spiel": 1.0, "memory": 5.0,
        "popgym": 30.0, "envpool": 30.0, "football": 10.0, "pettingzoo": 30.0, "pgx": 1.0,
        "openenv": 30.0,
    }  # fmt: skip


def test_masks_are_read_where_environments_may_show_some():
    ids = ("gym:CartPole-v1", "python:mine:make", "popgym:X", "pettingzoo:mine", "spiel:tic_tac_toe", "atari:Pong")
    assert [families.is_read("env.action_mask", env_id) for env_id in ids] == [True] * 4 + [False] * 2


def test_help_has_the_forms_of_all_families():
    assert all(family.form.lower() in families.FORMS.lower() for family in families.FAMILIES)
    assert families.FORMS.startswith("catch | gym:ID | gym:module:ID | python:module:function | ")


def test_what_needs_a_package_says_how_to_install_it():
    for offer in OFFERS:
        assert offer.module or offer.state == "installed"
        assert bool(offer.needs or offer.advice) == bool(offer.module)
        absent = offer._replace(module="no_such_module", distribution=offer.distribution or offer.module).state
        remedy = "docs/" if offer.advice else packages.install_command(*offer.needs)
        assert not offer.module or absent.startswith(f"not installed: {remedy}")


@pytest.mark.parametrize("offer", [offer for offer in OFFERS if not offer.module], ids=lambda offer: offer.example)
def test_a_family_without_a_package_is_installed(offer):
    assert offer.state == "installed"


def test_installed_packages_have_their_version():
    (atari,) = families.of("atari:Pong").offers
    assert atari.state.startswith("installed: ale-py 0.")
    assert atari._replace(module="no_such_module").state.startswith("not installed: ")
    assert atari._replace(distribution="no-such").state == "installed: no-such"
