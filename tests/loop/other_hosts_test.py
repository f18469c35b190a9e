"""Steps and samples of all hosts of a run, whichever of them are there after a resume."""

from __future__ import annotations

import loop_world

from seedzero.loop import agreement, other_hosts
from seedzero.metrics import counts

STEPS = counts.Counts(stored=40, discarded={counts.UNFINISHED_UNROLL: 2}, num_samples=12)


def _agreed(**others: counts.Counts) -> agreement.Agreed:
    found = agreement.Agreed(0, 3, lambda message: None)
    found.others = {int(name.removeprefix("host_")): each for name, each in others.items()}
    return found


def test_steps_never_fall_with_fewer_hosts() -> None:
    """Of three hosts two come back, of which one may have lost its disk; then host 0 goes on alone."""
    saved = other_hosts.OtherHosts(_agreed(host_1=STEPS, host_2=STEPS)).to_json()
    for parts, kept in (((0, 1), [1]), ((0,), [])):
        agreed = _agreed()
        found = other_hosts.OtherHosts(agreed)
        found.restore(saved, parts)
        assert list(agreed.others) == kept
        total = counts.total(list(found.counts().values()))
        assert (total.env_steps, total.num_samples) == (84, 24)
        alone = other_hosts.OtherHosts()
        alone.restore(found.to_json())
        assert counts.env_steps_of({"ledger": {"stored": 5}, **alone.to_json()}) == 89


def test_a_host_that_was_always_alone_saves_nothing() -> None:
    assert other_hosts.OtherHosts().to_json() == {} == other_hosts.OtherHosts(_agreed()).to_json()


def test_a_checkpoint_has_them_and_the_screen_adds_them_up(make_queued: loop_world.Make) -> None:
    world = make_queued()
    large = counts.Counts(stored=1000, num_samples=900)
    world.loop.others = other_hosts.OtherHosts(_agreed(host_1=large))
    assert (world.loop.look().counts.stored, world.loop.look().num_samples) == (1000, 900)
    assert counts.env_steps_of(world.loop.state().counters) == 1000
