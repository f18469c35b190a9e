"""The example of a policy client in JavaScript, over TLS with a token; skipped where node or its packages are missing.

The server plays the middle legal column; the outcomes are those of OpenSpiel's rules.
"""

from __future__ import annotations

import json
import pathlib
import subprocess

import certificates
import numpy as np

from seedzero.config import sections
from seedzero.envs import spiel
from seedzero.transport import policy_codec, policy_servers, security

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "javascript"
TOKEN = "0123456789abcdef"
SECONDS = 600.0
NUM_GAMES = 40


def _middle(mask: np.ndarray) -> int:
    legal = np.flatnonzero(mask)
    return int(legal[len(legal) // 2])


class Middle:
    """Plays the middle legal column, and keeps the observations."""

    num_slots = 2 * NUM_GAMES

    def __init__(self, game: spiel.Game) -> None:
        self.server: policy_servers.PolicyServer
        self.seen: set[bytes] = set()
        self._spec = game.spec

    def offer(self) -> policy_codec.PolicyOffer:
        env, rows = "spiel:connect_four", self.num_slots
        return policy_codec.PolicyOffer(self._spec, env, "muzero", {"main": 3}, False, True, True, False, rows)

    def act(self, request: policy_servers.PolicyRequest) -> None:
        step = request.rows.step
        assert step.action_mask is not None
        self.seen |= {frame.tobytes() for frame in step.observation}
        acted = policy_codec.PolicyAnswer(np.array([_middle(mask) for mask in step.action_mask]), 3, {})
        data = policy_codec.encode_acted(request.sequence, acted)
        self.server.answer([(request.session_id, request.sequence, data)])


def _expected(game: spiel.Game) -> tuple[dict[str, int], set[bytes]]:
    """Returns the outcomes of the first player's games by OpenSpiel, and the observations."""
    counts, seen = {"wins": 0, "draws": 0, "losses": 0}, set()
    for number in range(NUM_GAMES):
        state = game.initial()
        for move in range(2):
            state = game.apply(state, ((number >> 1) * 5 + 3 * move + (number >> 4)) % 7)
        while not game.is_terminal(state):
            seen.add(game.observe(state).tobytes())
            state = game.apply(state, _middle(game.legal_mask(state)))
        total = game.returns(state)[number % 2]
        counts[{1.0: "wins", 0.0: "draws", -1.0: "losses"}[total]] += 1
    return counts, seen


def test_games_by_tls_and_token_have_the_outcomes_of_the_rules(node: str, tmp_path: pathlib.Path) -> None:
    game, token = spiel.Game("connect_four"), tmp_path / "token"
    files = certificates.make(tmp_path / "authority", ["127.0.0.1"])
    token.write_text(TOKEN)
    tls = sections.TlsConfig(str(files.cert), str(files.key))
    player = Middle(game)
    settings = sections.TransportConfig(listen="127.0.0.1:0")
    player.server = policy_servers.PolicyServer(player, settings, secured=security.for_server(str(token), tls))
    address = player.server.start()
    try:
        command = [node, str(FOLDER / "policy.js"), address, f"--games={NUM_GAMES}", f"--ca={files.ca}"]
        done = subprocess.run([*command, f"--token={token}"], capture_output=True, timeout=SECONDS, check=True)
        refused = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    finally:
        player.server.stop("the test is over")
    expected, seen = _expected(game)
    assert json.loads(done.stdout) == {"games": NUM_GAMES, **expected} and player.seen == seen
    assert refused.returncode == 1 and b"UNAUTHENTICATED" in refused.stderr
    assert player.server.num_sessions == 0
