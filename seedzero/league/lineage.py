"""Traces the origin of each player in a league."""

from __future__ import annotations

from typing import Any

from seedzero.league import members

ADD, FREEZE, RESET, RETIRE = "add", "freeze", "reset", "retire"


def tree(pool: members.Pool) -> list[dict[str, Any]]:
    """Returns the players that learn or have learned, each with its snapshots and resets in order.

    The events of a player that a builder added begin with that, and those of a retired player end with its retirement.
    Only the reason of the newest decision on a player itself is kept; earlier ones are "". Removed snapshots are
    missing, and so are resets that only these recorded.
    """
    return [{**one.to_json(), "events": _events(pool, one)} for one in pool.members if one.kind in members.LEARNING]


def text(pool: members.Pool) -> str:
    """Returns the tree as text for a terminal."""
    lines = []
    for player in tree(pool):
        lines.append(f"{player['name']} ({player['kind']}): {_counts(player)}")
        for event in player["events"]:
            name = {
                ADD: f"added as {event.get('source')}",
                RESET: f"reset {event.get('number')} to {event.get('source')}",
                RETIRE: "retired",
            }.get(event["event"], event.get("player"))
            mark = "└─" if event is player["events"][-1] else "├─"
            rest = "; ".join(filter(None, (_counts(event), event["reason"], "retired" * event.get("retired", False))))
            lines.append(f"{mark} {name}: {rest}")
    return "\n".join(lines)


def _events(pool: members.Pool, player: members.Member) -> list[dict[str, Any]]:
    snapshots = [member for member in pool.members if member.parent == player.name]
    reset = {member.resets: member for member in (*snapshots, player) if member.resets}
    found: dict[tuple[int, int, int], dict[str, Any]] = {
        (number, 0, 0): {
            "event": RESET,
            "number": number,
            "source": member.source,
            "version": member.reset_version,
            "env_steps": member.reset_env_steps,
            "reason": member.reason if member.learns else "",
        }
        for number, member in reset.items()
    }
    if player.origin:
        reason = player.reason if player.learns and not player.resets else ""
        found[-1, 0, 0] = {"event": ADD, "source": player.origin, "version": 0, "env_steps": 0, "reason": reason}
    if player.retired:
        counts = dict(version=player.version, env_steps=player.env_steps)
        found[player.resets, 2, 0] = {"event": RETIRE, **counts, "reason": player.reason}
    for place, member in enumerate(snapshots):
        values = {name: getattr(member, name) for name in ("version", "env_steps", "reason", "retired")}
        found[member.resets, 1, place] = {"event": FREEZE, "player": member.name, **values}
    return [event for _, event in sorted(found.items())]


def _counts(values: dict[str, Any]) -> str:
    return f"update {values['version']:,}, {values['env_steps']:,} steps"
