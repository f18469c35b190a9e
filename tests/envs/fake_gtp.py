"""A small program that speaks GTP, for tests: it takes the first free place, or does what its argument says."""

from __future__ import annotations

import sys
import time

BEHAVIOUR = sys.argv[1] if len(sys.argv) > 1 else "plays"
LETTERS = "ABCDEFGHJKLMNOPQRST" if "go" in sys.argv else "ABCDEFGHIJKLMNOPQRST"


def main() -> None:
    size, taken = 19, set[str]()
    for line in sys.stdin:
        command, *words = line.split()
        refusal, answer = "", ""
        if command == "boardsize":
            size, refusal = int(words[0]), "unacceptable size" if BEHAVIOUR == "small" else ""
        elif command == "clear_board":
            taken = set()
        elif command == "play":
            taken.add(words[1].upper())
        elif command == "genmove":
            if BEHAVIOUR == "dies":
                sys.exit(3)
            if BEHAVIOUR == "sleeps":
                time.sleep(60)
            places = [f"{letter}{row}" for row in range(1, size + 1) for letter in LETTERS[:size]]
            free = next((place for place in places if place not in taken), "pass")
            answer = {"illegal": places[0], "resigns": "resign", "babbles": "Z99", "floods": "x" * 200_000}.get(
                BEHAVIOUR, free
            )
            taken.add(answer)
        elif command not in ("komi", "quit"):
            refusal = "unknown command"
        print(f"? {refusal}" if refusal else f"= {answer}", end="\n\n", flush=True)
        if command == "quit":
            return


main()
