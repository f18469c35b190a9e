import numpy as np

from seedzero.envs import spiel_seats

KUHN = spiel_seats.SpielSeats("kuhn_poker")


class Drawn:
    """A generator that draws given numbers between 0 and 1."""

    def __init__(self, *numbers):
        self.random = iter(numbers).__next__


def after(game, moves, *drawn):
    """Returns the state after moves, each {seat: action}."""
    generator = Drawn(*drawn)
    state = game.initial(generator)
    for move in moves:
        state = game.apply(state, move, generator)
    return state


def test_kuhn_poker_by_hand():
    dealt = after(KUHN, [], 0.5, 0.4)  # the second of three cards, then the first of the other two
    assert KUHN.movers(dealt) == (0,)
    # Own number, own card, then pass or bet of each move: all that a seat knows.
    np.testing.assert_array_equal(KUHN.observe(dealt, 0), [1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(KUHN.observe(dealt, 1), [0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    bet = KUHN.apply(dealt, {0: 1}, Drawn())
    assert KUHN.movers(bet) == (1,) and KUHN.movers(dealt) == (0,)
    assert KUHN.returns(bet) == (0, 0)
    called, folded = (KUHN.apply(bet, {1: action}, Drawn()) for action in (1, 0))
    assert KUHN.movers(called) == KUHN.movers(folded) == ()
    assert KUHN.returns(called) == (2, -2) and KUHN.returns(folded) == (1, -1)
    assert not KUHN.is_out(called, 0)
