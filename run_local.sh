#!/usr/bin/env bash
# Installs the requirements into .venv beside this file, once, and trains: ./run_local.sh GAME [AGENT] [--key=value ...]
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
. "$root/scripts/venv.sh"

usage() {
    cat <<'TEXT'
usage: ./run_local.sh GAME [AGENT] [--key=value ...]

Installs its requirements into .venv beside this script (once), then trains an agent with local workers. It shows progress
and writes everything into runs/. Ctrl-C saves, prints the command to resume, and exits.

GAME
  catch              learns in seconds, ends by itself
  cartpole           learns within two minutes on two cores, ends by itself
  tictactoe          self-play until it loses no more, minutes on two cores, ends by itself
  connect_four       the same on a board of 4 rows and 5 columns
  league [GAME]      the same games, against frozen copies of itself too: tictactoe (the default) or connect_four; with
                     PPO kuhn and leduc (poker) and brps (biased rock-paper-scissors)
  atari              Pong; any other game: ./run_local.sh atari --env=atari:Breakout
  dmlab              DeepMind Lab, which must be built before: explore_goal_locations_small; any other level: dmlab:LEVEL, all 30:
                     dmlab:dmlab30. For vtrace
  football           Google Research Football, academy_empty_goal; any other scenario: football:SCENARIO. Installs EnvPool
  mujoco             HalfCheetah-v5 (try sac or ppo); any other robot: ./run_local.sh mujoco sac --env=gym:Hopper-v5
  gym:ID             any Gymnasium environment, e.g. gym:Acrobot-v1, gym:LunarLander-v3, gym:MinAtar/Breakout-v1;
                     with continuous actions too: gym:Pendulum-v1; ends at its registered reward threshold, if it has one
  gym:MODULE:ID      the same, after importing your own module
  python:MODULE:FUNCTION   what your own function returns, a Gymnasium environment
  memory:TASK        what was shown must be remembered: memory:tmaze-20, memory:repeat-4, memory:cartpole; for muzero, r2d2, ppo, vtrace
  popgym:ID          what was shown must be remembered: POPGym's tasks, e.g. popgym:RepeatPreviousEasy-v0
  envpool:ID         any environment of EnvPool for one player, e.g. envpool:MiniGrid-DoorKey-5x5-v0, envpool:CheetahRun-v1
  spiel:NAME         a game of OpenSpiel, e.g. spiel:othello, "spiel:breakthrough(rows=6,columns=6)"; spiel:leduc_poker
  2048               OpenSpiel's 2048, whose model knows chance; pig and backgammon: spiel:pig
  hex, othello, go9  board games of Pgx, whose rules are searched: hex on 5x5, Go on 9x9; any other: pgx:GAME, as pgx:chess.
                     connect_four with alphazero has its board of 6 rows and 7 columns
AGENT                muzero unless the game needs another
  muzero             plans with a learned model: the most from each step
  alphazero          plans by the rules of the game itself, in board games: the strongest play there
  vtrace             IMPALA's actor-critic: many more steps a second, learns from each once
  apex               Ape-X DQN: Q-learning from a prioritized replay
  r2d2               Ape-X with an LSTM, for environments that need a memory
  ppo                learns several times from its newest steps; discrete or continuous actions
  sac                learns continuous actions from few steps
  MODULE:OBJECT      an agent of your own

Examples
  ./run_local.sh catch
  ./run_local.sh cartpole vtrace
  ./run_local.sh league connect_four --max_seconds=3600
  ./run_local.sh atari muzero --env=atari:Breakout --run_dir=runs/breakout
  ./run_local.sh gym:LunarLander-v3 --max_seconds=300
  ./run_local.sh cartpole ppo --page=0        (with a page of the run: its address is printed)

An NVIDIA GPU or a TPU is used if there is one; SEEDZERO_DEVICE=cpu|cuda|tpu overrides the detection.
After the first run: .venv/bin/seedzero config --preset=catch explains every setting.
TEXT
}

die() {
    say "$*"
    say "./run_local.sh without arguments explains itself"
    exit 2
}

wrong_game() {
    local nearest=""
    case "$(printf '%s' "$1" | tr '[:upper:]' '[:lower:]')" in
        *league*) nearest="league (for a game: ./run_local.sh league connect_four)" ;;
        *tic*tac* | *tac*toe* | ttt) nearest="tictactoe" ;;
        *connect* | *four* | c4) nearest="connect_four" ;;
        *spiel* | *othello* | *hex* | chess | go) nearest="spiel:NAME, as in spiel:othello" ;;
        *lander* | *acrobot* | *gym*) nearest="gym:ID, as in gym:LunarLander-v3" ;;
        ca[rt]*pol* | *pole* | car*) nearest="cartpole" ;;
        ca* | *tch* | *tach) nearest="catch" ;;
        foot* | *soccer* | *academy*) nearest="football (for a scenario: football:5_vs_5)" ;;
        muj* | *cheetah* | *hopper* | *walker*) nearest="mujoco (for a robot: ./run_local.sh mujoco sac --env=gym:Hopper-v5)" ;;
        *envpool* | *minigrid* | *doom*) nearest="envpool:ID, as in envpool:MiniGrid-Empty-8x8-v0" ;;
        *lab | *dmlab* | *deepmind*) nearest="dmlab (for a level: dmlab:rooms_watermaze)" ;;
        at* | *tari* | *ale* | pong | breakout) nearest="atari (for a game: ./run_local.sh atari --env=atari:Pong)" ;;
    esac
    nearest=${nearest:+; did you mean $nearest?}
    die "unknown game '$1'${nearest:-.} The games are catch, cartpole, tictactoe, connect_four, 2048, hex, othello, go9, league, atari, dmlab, football, mujoco, gym:ID, envpool:ID, spiel:NAME, pgx:GAME, atari:GAME, dmlab:LEVEL, football:SCENARIO, memory:TASK, popgym:ID and python:MODULE:FUNCTION."
}

has_tpu() {
    local group
    [ -z "${TPU_NAME:-}${TPU_WORKER_ID:-}${TPU_ACCELERATOR_TYPE:-}" ] || return 0
    ! compgen -G '/dev/accel[0-9]*' >/dev/null || return 0
    for group in /dev/vfio/[0-9]*; do # TPUs since v5p; other devices may be there, too, of another vendor
        ! grep -qs 0x1ae0 "/sys/kernel/iommu_groups/${group##*/}/devices/"*/vendor || return 0
    done
    return 1
}

# Prints the extra with JAX for this machine's accelerator, nothing for a CPU.
accelerator() {
    case "${SEEDZERO_DEVICE:-}" in
        cpu) return ;;
        cuda | tpu) echo "$SEEDZERO_DEVICE"; return ;;
        "") ;;
        *) die "SEEDZERO_DEVICE=$SEEDZERO_DEVICE: expected cpu, cuda or tpu" ;;
    esac
    if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi >/dev/null 2>&1; then
        echo cuda
    elif has_tpu; then
        echo tpu
    fi
}

case "${1:-}" in
    "") usage >&2; exit 2 ;;
    -h | --help | help) usage; exit 0 ;;
    -*) die "the game comes first, then $1" ;;
esac
game=$1
shift

if [ "$game" = league ]; then
    case "${1:--}" in
        -*) game=league-tictactoe ;;
        tictactoe | tic-tac-toe | tic_tac_toe) game=league-tictactoe && shift ;;
        connect_four | connect-four) game=league-connect-four && shift ;;
        kuhn | leduc | brps | goofspiel | soccer) game=league-$1 && shift ;;
        *) die "unknown game '$1' of a league; its games are tictactoe, connect_four, kuhn, leduc, brps, goofspiel and soccer" ;;
    esac
fi

agent=
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
    agent=$1
    shift
fi
agents="" listed=""
while IFS= read -r line; do # the names below AGENT
    case "$line" in
        AGENT*) listed=1 ;;
        "") listed="" ;;
        "  "[a-z]*) [ -z "$listed" ] || { line=${line#  } && agents="$agents${line%% *} "; } ;;
    esac
done <<< "$(usage)"
case " $agents/$agent" in
    *" ${agent:-muzero} "* | *?:?*) ;;
    *) die "unknown agent '$agent'; the agents are: ${agents% }" ;;
esac

extras=$(accelerator)
case "$game" in
    catch | cartpole | atari | dmlab) choice="--preset=$game" ;;
    atari:?* | dmlab:?* | python:?* | memory:?*) choice="--env=$game" ;;
    football)
        choice="--preset=$game"
        extras="${extras:+$extras,}envpool"
        ;;
    popgym:?*)
        choice="--env=$game"
        extras="${extras:+$extras,}popgym"
        ;;
    football:?* | envpool:?*)
        choice="--env=$game"
        extras="${extras:+$extras,}envpool"
        ;;
    mujoco)
        choice="--preset=$game"
        extras="${extras:+$extras,}mujoco"
        ;;
    hex | othello | go9)
        choice="--preset=$game"
        extras="${extras:+$extras,}pgx"
        ;;
    pgx:?*)
        choice="--env=$game"
        extras="${extras:+$extras,}pgx"
        ;;
    2048)
        choice="--preset=chance"
        extras="${extras:+$extras,}games"
        ;;
    tictactoe | connect_four | league-*)
        choice="--preset=$game"
        [ "$game-$agent" = connect_four-alphazero ] && extras="${extras:+$extras,}pgx" || extras="${extras:+$extras,}games"
        ;;
    spiel:?*)
        choice="--env=$game"
        extras="${extras:+$extras,}games"
        ;;
    gym:?*)
        choice="--env=$game"
        case "$game" in
            gym:LunarLander* | gym:BipedalWalker* | gym:CarRacing*)
                say "$game needs Box2D: adding the extra box2d"
                extras="${extras:+$extras,}box2d"
                ;;
            gym:HalfCheetah* | gym:Hopper* | gym:Ant-* | gym:Humanoid* | gym:Walker2d* | gym:Swimmer* | gym:Reacher* | gym:Pusher* | gym:Inverted*)
                say "$game needs MuJoCo: adding the extra mujoco"
                extras="${extras:+$extras,}mujoco"
                ;;
            gym:minigrid:* | gym:vizdoom*)
                extra=${game#gym:} && extra=${extra%%[:.]*}
                say "$game needs the package $extra: adding the extra $extra"
                extras="${extras:+$extras,}$extra"
                ;;
            gym:MinAtar/*)
                say "$game needs the package MinAtar (GPL): adding the extra minatar"
                extras="${extras:+$extras,}minatar"
                ;;
        esac
        ;;
    *) wrong_game "$game" ;;
esac

case " $* " in
    *" --page"[=\ ]*) extras="${extras:+$extras,}page" ;;
esac
ensure_venv "$extras"
if [ "${SEEDZERO_DEVICE:-}" = cpu ]; then
    export JAX_PLATFORMS=cpu # an earlier call may have installed JAX for an accelerator
fi
exec "$root/.venv/bin/seedzero" train "$choice" ${agent:+--agent="$agent"} "$@"
