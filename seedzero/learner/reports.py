"""Reports an evaluation to the screen, the metrics, the videos and the checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

from seedzero.core import opponents
from seedzero.learner import callbacks, filming, saving
from seedzero.loop import evaluators
from seedzero.metrics import episodes
from seedzero.monitoring import views

_MOST_TOLD = 5
"""Opponents in a message, if there are more."""


def evaluated(
    view: views.View,
    saves: saving.Saves,
    films: filming.Filmer,
    called: callbacks.Callbacks,
    ended: evaluators.Ended,
) -> None:
    """Shows and writes the result of an evaluation, and saves the best parameters."""
    result, update = ended.result, ended.running.update
    values = {f"evaluation_{name}": value for name, value in result.flat().items()}
    normalized = ended.human_normalized
    if normalized is not None:
        values["evaluation_human_normalized"] = normalized
    if ended.best_score is not None:
        values["evaluation_best_score"] = ended.best_score
    began = {"update": update, "env_steps": ended.running.env_steps}  # training may have continued meanwhile
    view.write_row({**began, "kind": "evaluation", **values}, gathered=False)
    cut = f", {result.cut_off} of them cut off as too long" if result.cut_off else ""
    best = "; the best so far" if ended.is_record else ""
    if result.unfinished:
        best = (
            f"; cut short, since {result.unfinished} more had not ended in time: give it more time, or "
            "--evaluation.max_episode_steps=N to end them earlier"
        )
    score = "" if normalized is None else f", human-normalized {normalized:.3f}"
    shown = _against(opponents.mean_returns(result.task_returns))
    shown += "".join(f", {name} {value:.4g}" for name, value in result.info.items())
    scored = episodes.with_error(result.to_json(), len(ended.running.policies))
    error = f" +- {scored['stderr_return']:.2g}" if "stderr_return" in scored else ""
    view.screen.message(
        f"evaluation at update {update}: return {result.mean_return:.4g}{error} over "
        f"{result.episodes} episodes{cut}{shown}{score}{best}"
    )
    films.evaluated(saves.durable_update)
    scores = {"human_normalized": normalized, "best_score": ended.best_score, "is_best": ended.is_best}
    saved = saves.save_best(ended) if ended.is_best else None
    called.note("on_evaluation", {**began, **result.to_json(), **scores}, saved)


def _against(returns: Mapping[str, float]) -> str:
    """Returns the part of a message with the mean returns against all opponents, or, of many, the lowest."""
    is_long = len(returns) > _MOST_TOLD
    told = dict(sorted(returns.items(), key=lambda pair: pair[1])[:_MOST_TOLD]) if is_long else returns
    against = ", ".join(f"{name} {value:.3g}" for name, value in told.items())
    rest = f", more against {len(returns) - len(told)} others" if is_long else ""
    return f", against {against}{rest}" if against else ""
