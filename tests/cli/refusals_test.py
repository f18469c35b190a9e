"""What a command line refuses: one row for each mistake, in one line with the facts."""

from __future__ import annotations

import pathlib
import shlex

import pytest

from seedzero.cli import main as commands

SWEEP = "-- --preset=catch --agent=ppo"
REFUSED = (
    # the program
    ("tran", "'tran'; ... train"),
    ("envs --foo", "--foo; ... `seedzero envs --help`"),
    # train
    ("train", "`seedzero train --env=gym:CartPole-v1`"),
    ("train --seed=3", "--env=ENV"),
    ("train --env=pixels", "--env=pixels names a preset, not an environment; give --preset=pixels"),
    ("train --env=atari:Pongg", "pong"),
    ("train --env=atari:Pong --env.kwargs={}", "--env.kwargs={} is for environments gym, python, "),
    ("train --env=gym:CartPole-v1 --env.kwargs={1}", "--env.kwargs={1} must be a JSON object"),
    ("""train --env=gym:CartPole-v1 '--env.kwargs={"x": 1}'""", "unexpected keyword argument 'x'"),
    ("train --env=gym:Pendulum-v1 --agent=vtrace", "vtrace ... continuous"),
    ("train --preset=atri", "--preset=atri; ... --preset=atari"),
    (
        "train --preset=catch --agent=vtrace --search.num_simulations=4",
        "--search.num_simulations ... muzero ... --agent=vtrace; ",
    ),
    ("train --preset=catch --qqqq", "--qqqq; ... `seedzero config --preset=NAME`"),
    ("train --preset=catch --run_dir=", "--run_dir= "),
    ("train --preset=catch --run_dir=file", "--run_dir=file is a file; expected a directory"),
    ("train --run_dir=/nowhere/at/all", "/nowhere/at/all "),
    # evaluate, play and record
    ("evaluate --run_dir=", "--run_dir= ... DIR"),
    ("evaluate --run_dir=r --episodes=0", "--episodes=0: "),
    ("evaluate --run_dir=r --episodes=1 --step=first", "--step=first: "),
    ("evaluate --run_dir=r --token_file=t", "--token_file is for --listen=HOST:PORT"),
    ("evaluate --run_dir=r --tls.ca_file=c", "--tls.ca_file is for --opponent=HOST:PORT"),
    (
        "evaluate --run_dir=r --opponent=here:1/main --tls.cert_file=c",
        "--tls.cert_file is for --listen=HOST:PORT",
    ),
    ("evaluate --run_dir=r --listen=0.0.0.0:0", "give --token_file=FILE"),
    ("evaluate --run_dir=r --listen=here", "expected HOST:PORT"),
    ("evaluate --run_dir=r --listen=127.0.0.1:0 --opponent=random", "--opponent=random: the worker that --listen"),
    ("play --run_dir=r --video=a.avi", "a.avi: ... .mp4 ... .gif"),
    ("play --run_dir=r --page --video=a.gif", "--page shows a record, --video writes a video"),
    ("play --run_dir=gs://bucket/r --page", "--run_dir=gs://bucket/r: --page records into"),
    ("play gs://bucket/r --human", "gs://bucket/r"),
    ("record --run_dir=r --out=gs://b/o", "--out="),
    ("record --run_dir=gs://b/r", "--out="),
    ("record --run_dir=r --simulations=0", "--simulations"),
    ("record --run_dir=r --step=newest", "--step"),
    # what looks at runs
    ("status", "--run_dir=DIR ... --server"),
    ("status --run_dir=r --server=y", "--run_dir=DIR ... --server"),
    ("status --run_dir=r --token_file=y", "--token_file ... --server=HOST:PORT"),
    ("checkpoint --run_dir=r", " list, verify"),
    ("checkpoint list --run_dir=.", "is not a run directory: config.json is missing; give --run_dir=DIR"),
    ("diagnose", "--run_dir"),
    ("diagnose none", "none"),
    ("compare nowhere", "nowhere"),
    ("plot nowhere", "nowhere holds no run: there is no such directory; give a run directory"),
    ("plot", "usage: seedzero plot RUN [RUN ...] "),
    ("page", "--run_dir=DIR|gs://BUCKET/PATH is missing"),
    ("page --run_dir=nowhere", "--run_dir=nowhere: there is no such directory; give a run"),
    ("page --run_dir=gs://bucket", "--run_dir=gs://bucket: expected gs://BUCKET/PATH"),
    ("page --run_dir=. --port=65536", "--port=65536: expected at most 65535"),
    ("page --run_dir=. --port=-1", "--port=-1: expected at least 0"),
    ("page --run_dir=. --host=", "--host is empty; give 127.0.0.1"),
    ("page --run_dir=. --host=0.0.0.0", "give --token_file=FILE"),
    ("page --run_dir=. --token_file=nowhere", "--token_file=nowhere cannot be read: No such file"),
    # serve
    ("serve", "takes one of --run_dir=DIR and --learner=HOST:PORT"),
    ("serve r --learner=here:1", "--run_dir=DIR"),
    ("serve r --serve.token_file=t", "--serve.token_file is for --learner"),
    ("serve --learner=here:1 --step=3", "--step=3: --learner"),
    ("serve --learner=here", "address 'here' is neither HOST:PORT"),
    ("serve r --metrics_port=65536", "--metrics_port=65536: expected at most 65535"),
    ("serve r --http_port=65536", "--http_port=65536: expected at most 65535"),
    (
        "serve gs://bucket/r --player=all --step=90",
        "--step=90: several players of a run in a bucket ... omit --step, or name one player",
    ),
    ("worker", "--server=HOST:PORT|unix:PATH "),
    # check-env
    ("check-env", "seedzero check-env ENV"),
    ("plot", "RUN is missing; usage: seedzero plot RUN"),
    ("watch", "unknown command 'watch'; choose one of train"),
    ("train --preset=breakout", "unknown preset --preset=breakout; `seedzero train --help`"),
    ("check-env catch --env=catch", "name one environment ... leave --env=catch out"),
    ("check-env catch --nonsense=1", "unknown setting --nonsense=1"),
    ("check-env catch --steps=0", "--steps=0: ... at least 1"),
    # league
    ("league elo", "--run_dir"),
    ("league show main --run_dir=r", "league show takes no player, but here is main"),
    ("league show --games=4 --run_dir=r", "--games is for `seedzero league match A B`"),
    ("league match main --run_dir=r", "takes two players and the run"),
    ("league match --run_dir=r", "takes two players and the run"),
    ("league match a b c --run_dir=r", "unexpected word 'c'; usage: "),
    ("league match a b --games=1 --run_dir=r", "--games=1: expected at least 2"),
    ("league match a b --out=a.json --run_dir=r", "--out is for export and heatmap"),
    ("league match a b --step=4 --run_dir=r", "--step is for `seedzero league nash` and `export --policies`"),
    ("league match a b --anchors=a=0 --run_dir=r", "--anchors is for `seedzero league elo`"),
    ("league show --token_file=t --run_dir=r", "--token_file is for `seedzero league match A B`"),
    ("league export --run_dir=r", "--out=FILE.json is missing"),
    ("league export --out=a.svg --run_dir=r", "--out=a.svg: the name must end in .json"),
    (
        "league export --out=a.json --step=90 --run_dir=r",
        "--step is for `seedzero league nash` and `export --policies`",
    ),
    ("league heatmap --run_dir=r", "--out=FILE.svg is missing"),
    ("league heatmap --out=a.json --run_dir=r", "--out=a.json: the name must end in .svg or .png"),
    ("league heatmap --out=a.svg main --run_dir=r", "heatmap takes no player, but here is main"),
    ("league nash --policies --run_dir=r", "--policies is for `seedzero league export`"),
    ("league nash --step=best --run_dir=r", "--step=best: that checkpoint has no league; "),
    ("league nash --step=new --run_dir=r", "--step=new: expected the number of a saved update"),
    ("league elo --anchors=random --run_dir=r", "--anchors=random: expected NAME=POINTS"),
    ("league elo --anchors=random=strong --run_dir=r", "--anchors=random=strong: expected NAME=POINTS"),
    ("league elo --anchors=random=nan --run_dir=r", "--anchors=random=nan: expected NAME=POINTS"),
    # sweep
    ("sweep --seeds=1,2", "--env=ENV or --preset=NAME, as in `seedzero sweep"),
    (
        f"sweep --optimizer.learning_rate=log:1e-4:1e-2 {SWEEP}",
        "=log:1e-4:1e-2 is a range, which --trials=N searches",
    ),
    (f"sweep --sampler=random --seeds=1,2 {SWEEP}", "--sampler is for a search; give --trials=N"),
    (
        f"sweep --trials=2 --sampler=grid --optimizer.learning_rate=log:1e-4:1e-2 {SWEEP}",
        "--sampler=grid: choose one of tpe, random",
    ),
    (f"sweep --trials=0 {SWEEP}", "--trials=0: expected at least 1"),
    (f"sweep --seeds=1,x {SWEEP}", "--seed=x: expected a whole number"),
    (f"sweep --seeds=1,1 {SWEEP}", "--seed=1,1: 1 occurs twice"),
    (f"sweep --seed=1 --seeds=2 {SWEEP}", "give only --seeds"),
    (
        f"sweep --ppo.learning_rat=1,2 {SWEEP}",
        "--ppo.learning_rat=1,2; did you mean --optimizer.learning_rate?",
    ),
    (
        f"sweep --search.num_simulations=2,4 {SWEEP}",
        "--search.num_simulations is a setting of muzero and alphazero",
    ),
    ("sweep --agent=ppo,sac -- --preset=catch", "agent sac cannot play environments with discrete actions"),
    (f"sweep --agent=ppo,vtrace {SWEEP}", "--agent is given before -- and after it"),
    (f"sweep --seeds=1 {SWEEP} --run_dir=x", "--run_dir is given after --"),
    (f"sweep --seeds=1 --run_dir=gs://runs/x {SWEEP}", "--run_dir=gs://runs/x: a sweep needs a directory"),
    (f"sweep --seeds=1 --jobs=0 {SWEEP}", "--jobs=0: expected at least 1"),
    # benchmark
    ("benchmark everything", " transport, environments, acting, replay, update, search, sizing"),
    ("benchmark search --batch=8,16", "--batch=8,16: ... 8, 32, 128, 512"),
    ("benchmark search --network=", "--network=: ... free, small, middle"),
    ("benchmark search --policy=alpha", "--policy=alpha: ... gumbel, puct"),
    ("benchmark search --preset=catch", "--preset ... search ... --batch"),
    ("benchmark search --search.num_simulations=8", "--search.num_simulations ... search"),
    ("benchmark acting --batch=8", "--batch ... search; acting"),
    ("benchmark acting --players=3", "--players=3: ... 1, 2, 4, 8"),
    ("benchmark update --players=2", "--players=2 ... acting; update"),
    ("benchmark update --apex.n_step=5", "--apex.n_step ... apex, ... --agent=muzero"),
    ("benchmark transport --policy=puct", "--policy ... search; transport"),
)
"""A command line, and the facts of its answer in their order, with dots between them."""


@pytest.mark.parametrize(("line", "facts"), REFUSED, ids=[line for line, _ in REFUSED])
def test_a_mistake_ends_with_2_and_one_line(
    line: str,
    facts: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert commands.main(shlex.split(line)) == 2
    out, err = capsys.readouterr()
    (told,) = (text for text in err.splitlines() if "is being made and tried for" not in text)  # of a busy machine
    assert told.startswith("seedzero: error: ") and out == ""
    rest = told
    for fact in facts.split(" ... "):
        assert fact in rest, told
        rest = rest.partition(fact)[2]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
