"""The table of families names what the registry makes."""

import pytest

from seedzero.core import env_ids
from seedzero.envs import families, registry


def test_every_family_of_the_registry_has_a_row():
    kinds = {family.form.partition(":")[0] for family in families.FAMILIES}
    assert kinds == {*registry.LOCAL_KINDS, env_ids.REMOTE}
    assert all(family.example.partition(":")[0] == family.form.partition(":")[0] for family in families.FAMILIES)


def test_what_needs_a_package_says_how_to_install_it():
    for family in families.FAMILIES:
        has_package = " -m pip install " in family.install or family.install.startswith("docs/")
        assert bool(family.module) == bool(family.distribution) == has_package


@pytest.mark.parametrize("family", [f for f in families.FAMILIES if not f.module], ids=lambda family: family.form)
def test_a_family_without_a_package_is_installed(family):
    assert family.is_installed and family.version == ""


def test_installed_packages_have_their_version():
    atari = next(family for family in families.FAMILIES if family.form.startswith("atari"))
    assert atari.is_installed and atari.version.startswith("0.")
    absent = atari._replace(module="no_such_module", distribution="no-such")
    assert not absent.is_installed and absent.version == ""
