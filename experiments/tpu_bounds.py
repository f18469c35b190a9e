"""Predicts a learner's memory, pace and cost on TPUs by compiling a preset's programs with the TPU's own compiler.

    python experiments/tpu_bounds.py [--preset=NAME] [--chips=v5e-4] [--usd_per_chip_hour=USD] [--SECTION.KEY=VALUE]

With --cluster.num_hosts=N the update is compiled for a slice of N such hosts, and all other programs for one host.

The compiler comes with the package libtpu and needs no TPU. It reports each program's memory, arithmetic and moved
bytes; times follow from the chip's peaks (`roofline.py`). The programs are the learner's own, with the shapes of a
learner on such a machine.

XLA counts a loop's body once, however many trips it makes. So the body of each loop with a known number of trips, such
as the sweeps of a search, is compiled separately, once and twice in a row; the difference is added for every trip
after the first. For acting with two loops of 2 and 4 trips (32 rows, small network, v5e) that gave 1.001 of the
arithmetic and 0.988 of the bytes of the same program with unrolled loops. Loops without a known number are counted
once; a program's "open_loops" is their number, which is not 0 for searches with action masks.

"collectives" are the operations of a compiled program that send data between chips, those of a loop's body counted
once, and "collective_mb" what they bring to each chip. Their time is not counted.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent import futures
from typing import Any, NamedTuple

import jax
import numpy as np
import roofline
from jax.experimental import topologies
from jax.extend import core as jax_core

from seedzero.cli import benchmark, parse
from seedzero.config import configs, machines, options, presets
from seedzero.core import errors, packages
from seedzero.device import across, device_programs, meshes, setups, states, tracing
from seedzero.envs import registry
from seedzero.learner import build
from seedzero.replay import sources

DEFAULT_PRESET, DEFAULT_CHIPS = "atari", "v5e-1"
NAMES = {"reanalyse": "reanalyse"}
"""A program's name -> the name that is shown."""
TOGETHER = ("update", "align")
"""The programs that several hosts run together."""
LEARN = "learn"
"""The program for devices that only learn."""

_GB = 1e9
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",  # there is no metadata server to ask
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # compilation needs no device that another process could want
}

Row = dict[str, Any]


def run(
    *,
    preset: str = "",
    settings: Mapping[str, options.Value | str] | None = None,
    chips: str = DEFAULT_CHIPS,
    host_steps_per_second: float | None = None,
    usd_per_chip_hour: float | None = None,
    report: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """Compiles every program of a preset's learner on some chips, several at once, and predicts the pace.

    Args:
      preset: its name; empty: DEFAULT_PRESET.
      settings: by SECTION.KEY, over the preset's.
      chips: of `roofline.SLICES`.
      host_steps_per_second: most steps that host and environments make; None means what was measured elsewhere.
      usd_per_chip_hour: price of a chip; None means that no cost is predicted.
      report: called with each program's row as soon as it is known.

    Returns:
      facts of the machine, predicted steps, updates and hours, and "programs": name; rows over all chips of a group;
      compile_seconds, beside other compilations; argument_gb, temporary_gb, aliased_gb; needed_gb, with the learner's
      other state; gflop and moved_gb of one call on each chip; roofline_ms; estimated_ms, the compiler's cycles of all
      operations one after the other; open_loops; collectives; collective_mb; replay_share of the moved bytes that grow
      with the replay, None for smaller acting batches.

    Raises:
      UsageError: libtpu isn't installed.
      ConfigError: an unknown preset or setting, or one that these chips can't share.
      CapacityError: a program does not fit.
      EnvironmentFailure: the environment, and so its spec, can't be made.
    """
    preset = preset or DEFAULT_PRESET
    setup, config = make_setup(preset, settings or {}, chips)
    slice_ = roofline.of_hosts(chips, setup.num_hosts)
    rows = _compile(setup, make_mesh(chips, setup.num_hosts), config, roofline.CHIPS[slice_.chip], report)
    return {
        "preset": preset,
        "machine": chips,
        "topology": topology_name(slice_),
        "chips": slice_.num_chips,
        "hosts": setup.num_hosts,
        "device": setup.mesh.devices.flat[0].device_kind,
        "hbm_gb": roofline.CHIPS[slice_.chip].hbm_gb,
        "jax": jax.__version__,
        "programs": rows,
        **predict(rows, setup, config, host_steps_per_second, usd_per_chip_hour),
    }


# The learner's programs --------------------------------------------------------------------------------------------


def topology_name(slice_: roofline.Slice) -> str:
    """Returns the compiler's name for these chips; only v5p has three dimensions."""
    shape = slice_.topology if slice_.chip == "v5p" else slice_.topology[:2]
    return f"{slice_.chip}:{'x'.join(map(str, shape))}"


def make_mesh(chips: str, num_hosts: int = 1) -> jax.sharding.Mesh:
    """Returns a mesh of absent chips, host 0's first, for compilation alone.

    Raises UsageError if libtpu is not installed.

    The chips of two meshes are the same.
    """
    if importlib.util.find_spec("libtpu") is None and "TPU_LIBRARY_PATH" not in os.environ:
        command = packages.install_command("jax[tpu]")
        raise errors.UsageError(f"the TPU's compiler, package libtpu, isn't installed: {command}")
    topology = topology_name(roofline.of_hosts(chips, num_hosts))  # raises before anything is changed
    for name, value in _ENVIRONMENT.items():  # before libtpu is loaded
        os.environ.setdefault(name, value)
    jax.config.update("jax_platforms", "cpu")  # otherwise JAX would look for a TPU wherever libtpu is installed
    jax.config.update("jax_enable_compilation_cache", False)  # only compilation is logged
    return _absent(chips, topology)


@functools.cache
def _absent(chips: str, topology: str) -> jax.sharding.Mesh:
    found = topologies.get_topology_desc(
        platform="tpu",
        topology_name=topology,
        chips_per_host_bounds=roofline.SLICES[chips].topology,
    )
    devices = sorted(found.devices, key=lambda device: device.process_index)  # type: ignore[attr-defined]
    return jax.sharding.Mesh(np.array(devices), (meshes.AXIS,))


def make_setup(
    preset: str, settings: Mapping[str, options.Value | str], chips: str
) -> tuple[setups.Setup, configs.Config]:
    """Returns setup and settings of a learner, or of one of several hosts, on these chips; raises as `run`."""
    agent = str(settings.get("run.agent", configs.agent_names()[0]))
    config = configs.override(presets.get(preset, agent), settings)
    try:
        everywhere = make_mesh(chips, config.cluster.num_hosts)
    except ValueError as error:
        raise errors.ConfigError(
            f"--cluster.num_hosts={config.cluster.num_hosts}, --chips={chips}: {error}"
        ) from error
    mesh = meshes.part(everywhere, range(roofline.SLICES[chips].num_chips))
    machine = machines.Machine("tpu", machines.num_cores(), mesh.devices.size)
    config, _ = machines.resolve(config, preset=preset, explicit=settings.keys(), machine=machine)
    return setups.make(config, registry.spec(config.env), mesh), config


def traces(
    setup: setups.Setup, everywhere: jax.sharding.Mesh | None = None, *, on_host: bool = False
) -> dict[tuple[str, int], Callable[[], tracing.UncompiledProgram]]:
    """Returns functions that trace the learner's programs, by name and rows over all devices.

    everywhere: the devices of all hosts, if there are several. on_host: whether the host keeps the replay's frames.
    """
    actor = states.abstract_actor(setup)
    if on_host:
        actor = actor._replace(rings=actor.rings._replace(observation=None))
    several = setup.num_hosts > 1 and everywhere is not None
    # The program for several hosts needs their devices, of which none is here; its update is traced below.
    one = setup._replace(num_hosts=1) if several else setup
    strategy = device_programs.choose_strategy(one, on_host=on_host, on_ready=lambda: None)
    tracer = tracing.ProgramTracer(setup, states.abstract_train(setup), actor, strategy.held)
    num_shards, reanalyse = setup.layout.num_shards, setup.agent.reanalyse
    reanalysed = dict.fromkeys(("reanalyse", "draw_stale", "renew"), reanalyse.batch_size if reanalyse else 0)
    acting = {("act", size * num_shards): functools.partial(tracer.act, size) for size in reversed(setup.sizes)}
    whole = across.on_all_hosts(setup, everywhere) if several else setup
    update = across.trace_update(whole, tracer) if several else strategy.trace_update(tracer)
    traced = {**update, **(strategy.trace_reanalyse(tracer) if reanalyse else {})}
    training = {(name, reanalysed.get(name, whole.batch_size)): trace for name, trace in traced.items()}
    return {**acting, **training}


def halved(setup: setups.Setup) -> setups.Setup:
    """Returns the setup with rings of half the length, a multiple of the windows' stride."""
    stride = 1 if isinstance(setup.agent.data, sources.Queue) else setup.agent.data.stride
    length = max(setup.slot_length // 2, setup.agent.stack + setups.RING_MARGIN)
    return setup._replace(slot_length=-(-length // stride) * stride)


# Compilation -------------------------------------------------------------------------------------------------------


class TpuProgram(NamedTuple):
    """A compiled program, for each device.

    Attributes:
      compile_seconds: while other compilations run.
      needed_bytes: on each device while it runs, including the learner's other state there.
      counted: its cost, counting every loop's body once.
      cost: the same, counting known loops' bodies for each trip.
    """

    compiled: Any
    compile_seconds: float
    needed_bytes: int
    counted: roofline.Cost
    cost: roofline.Cost
    open_loops: int


def compile_program(trace: Callable[[], tracing.UncompiledProgram], mesh: jax.sharding.Mesh) -> TpuProgram:
    """Compiles a traced program for the mesh. Raises CapacityError if it does not fit."""
    traced = trace()
    begin = time.perf_counter()
    compiled = traced.compile()
    elapsed = time.perf_counter() - begin
    counted = _counted(compiled)
    extra, open_loops = _loops_cost(traced.function.jaxpr.jaxpr, mesh)
    needs = tracing.memory_needs(compiled, traced.elsewhere)
    return TpuProgram(compiled, elapsed, sum(needs), counted, counted.plus(extra), open_loops)


def _counted(compiled: Any) -> roofline.Cost:
    found, text = compiled.cost_analysis(), compiled.as_text()
    cycles = sum(int(number) for number in re.findall(r'"estimated_cycles":"(\d+)"', text))
    return roofline.Cost(found["flops"], found["bytes accessed"], cycles)


def _loops_cost(jaxpr: Any, mesh: jax.sharding.Mesh) -> tuple[roofline.Cost, int]:
    """Returns the cost of loops' trips after the first, and the number of loops with an unknown number of trips."""
    extra, num_open = roofline.Cost(0.0, 0.0), 0
    for loop, trips in loops(jaxpr):
        if trips is None:
            num_open += 1
            continue
        inner, inner_open = _loops_cost(loop["jaxpr"].jaxpr, mesh)
        extra, num_open = extra.plus(inner, trips), num_open + inner_open
        if trips > 1:
            once, twice = _body_cost(loop, 1, mesh), _body_cost(loop, 2, mesh)
            extra = extra.plus(twice.plus(once, -1), trips - 1)
    return extra, num_open


def loops(jaxpr: Any) -> Iterator[tuple[Mapping[str, Any], int | None]]:
    """Yields a function's outermost loops: JAX's parameters, and the number of trips, or None if it is unknown."""
    for equation in jaxpr.eqns:
        parameters = equation.params
        if equation.primitive.name == "scan":
            yield parameters, parameters["length"]
        elif equation.primitive.name == "while":
            yield parameters, None
        else:
            for parameter in parameters.values():
                for part in parameter if isinstance(parameter, tuple | list) else (parameter,):
                    inner = getattr(part, "jaxpr", part)
                    if hasattr(inner, "eqns"):
                        yield from loops(inner)


def _body_cost(loop: Mapping[str, Any], trips: int, mesh: jax.sharding.Mesh) -> roofline.Cost:
    """Returns the cost of a number of trips of a loop, one after another, with the shapes of a single device."""
    num_constants, num_carried, body = loop["num_consts"], loop["num_carry"], loop["jaxpr"]
    call = jax_core.jaxpr_as_fun(body)

    def run(*arguments: Any) -> Any:
        constants, rest = arguments[:num_constants], arguments[num_constants:]
        carried, inputs, outputs = rest[:num_carried], rest[num_carried:], []
        for _ in range(trips):
            found = call(*constants, *carried, *inputs)
            carried = found[:num_carried]
            outputs += found[num_carried:]
        return carried, outputs

    everywhere, replicated = meshes.replicated(mesh), meshes.REPLICATED
    arguments = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=everywhere) for aval in body.in_avals]
    function: Any = meshes.over_devices(run, mesh, replicated, replicated)
    return _counted(function.lower(*arguments).compile())


# Rows and predictions ----------------------------------------------------------------------------------------------


def _compile(
    setup: setups.Setup,
    everywhere: jax.sharding.Mesh,
    config: configs.Config,
    chip: roofline.Chip,
    report: Callable[[Row], None],
) -> list[Row]:
    """Returns the compiled programs' rows: acting, largest first, then training. Reports each when it is known."""
    on_host = config.replay.placement == "host"
    whole, half = (traces(one, everywhere, on_host=on_host) for one in (setup, halved(setup)))

    def row(name: str, num_rows: int) -> Row:
        is_apart = name == LEARN and setup.learners is not None  # it gets no replay
        together = setup.num_hosts > 1 and name in TOGETHER
        mesh = everywhere if together else setup.learns_on if is_apart else setup.mesh
        program = compile_program(whole[name, num_rows], mesh)
        is_smaller = name == "act" and num_rows < setup.max_rows
        share = None if is_smaller or is_apart else replay_share(program, half[name, num_rows](), setup)
        return {"name": NAMES.get(name, name), "rows": num_rows, **_figures(program, chip), "replay_share": share}

    with futures.ThreadPoolExecutor(machines.num_cores()) as pool:
        jobs = [pool.submit(row, *key) for key in whole]
        try:
            for job in futures.as_completed(jobs):
                report(job.result())
        finally:
            pool.shutdown(cancel_futures=True)
    return [job.result() for job in jobs]


def _figures(program: TpuProgram, chip: roofline.Chip) -> Row:
    found = program.compiled.memory_analysis()
    num_collectives, num_bytes = collectives(program.compiled.as_text())
    return {
        "compile_seconds": program.compile_seconds,
        "argument_gb": found.argument_size_in_bytes / _GB,
        "temporary_gb": found.temp_size_in_bytes / _GB,
        "aliased_gb": found.alias_size_in_bytes / _GB,
        "needed_gb": program.needed_bytes / _GB,
        "gflop": program.cost.flop / 1e9,
        "moved_gb": program.cost.moved_bytes / _GB,
        "roofline_ms": 1e3 * roofline.seconds(program.cost, chip),
        "estimated_ms": program.cost.cycles / (1e6 * chip.ghz),
        "open_loops": program.open_loops,
        "collectives": num_collectives,
        "collective_mb": num_bytes / 1e6,
    }


_COLLECTIVE = re.compile(
    r"= (.+?) (?:all-reduce|all-gather|all-to-all|collective-permute|ragged-all-to-all|reduce-scatter)(?:-done)?\("
)
_ARRAY = re.compile(r"\b(?:pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")


def collectives(text: str) -> tuple[int, int]:
    """Returns how many of a program's operations send data between devices, and the bytes of their results."""
    results = _COLLECTIVE.findall(text)
    arrays = [found for result in results for found in _ARRAY.findall(result)]
    sizes = [math.prod(map(int, filter(None, shape.split(",")))) * int(bits or 8) // 8 for bits, shape in arrays]
    return len(results), sum(sizes)


def replay_share(program: TpuProgram, half: tracing.UncompiledProgram, setup: setups.Setup) -> float | None:
    """Returns the share of moved bytes that grows with the replay, from the same program with half as long rings."""
    shorter = setup.slot_length - halved(setup).slot_length
    if not shorter:
        return None
    fewer = program.counted.moved_bytes - _counted(half.compile()).moved_bytes
    return fewer * setup.slot_length / shorter / program.cost.moved_bytes


def predict(
    rows: list[Row],
    setup: setups.Setup,
    config: configs.Config,
    host_steps_per_second: float | None,
    usd_per_chip_hour: float | None,
) -> dict[str, float]:
    """Returns the pace that the rows allow, limited by the host's."""
    calls = calls_per_step(setup, config)
    used = {row["name"]: row for row in rows if row["name"] != "act" or row["rows"] == setup.max_rows}
    groups: dict[str, Collection[str]] = {"device": used.keys()}
    if setup.learners is not None:  # both work at the same time, and the slower one sets the pace
        groups = {"acting": used.keys() - {LEARN}, "learning": {LEARN}}

    def pace(names: Collection[str], time: str) -> float:
        return float(setup.num_hosts / sum(used[name][time] / 1e3 * calls[name] for name in names))

    paces = {f"{group}_steps_per_second": pace(names, "roofline_ms") for group, names in groups.items()}
    on_device = min(paces.values())
    is_atari = config.env.id.startswith(("atari:", "gym:ALE/"))
    measured = roofline.ATARI_STEPS_PER_SECOND if is_atari else roofline.TRANSPORT_STEPS_PER_SECOND
    on_host = setup.num_hosts * (host_steps_per_second or measured)
    predicted = min(on_device, on_host)
    hours = roofline.hours(predicted, setup.spec.frames_per_step)
    found = {
        **paces,
        "device_steps_per_second": on_device,
        "estimated_steps_per_second": min(pace(names, "estimated_ms") for names in groups.values()),
        "host_steps_per_second": on_host,
        "predicted_steps_per_second": predicted,
        "predicted_updates_per_second": predicted / setup.num_hosts * calls[LEARN],
        "hours_200m_frames": hours,
    }
    if usd_per_chip_hour is not None:
        num_chips = setup.num_hosts * sum(mesh.devices.size for mesh in (setup.mesh, setup.learners) if mesh)
        found["usd_200m_frames"] = hours * usd_per_chip_hour * num_chips
    return found


def calls_per_step(setup: setups.Setup, config: configs.Config) -> dict[str, float]:
    """Returns each program's calls per stored step of a host, with full acting batches and the preset's ratios."""
    data, reanalyse = setup.agent.data, setup.agent.reanalyse
    if isinstance(data, sources.Queue):
        updates = 1 / (data.batch_size * data.length)
    else:
        updates = config.replay.samples_per_insert / setup.batch_size
    reanalyses = reanalyse.per_insert / reanalyse.batch_size if reanalyse else 0.0
    return {
        "act": 1 / setup.max_rows,
        **dict.fromkeys(("update", "draw", LEARN, "write_back"), updates),
        **dict.fromkeys(("reanalyse", "draw_stale", "renew"), reanalyses),
        "align": updates / build.EVERY_UPDATES,
    }


# The command line --------------------------------------------------------------------------------------------------


_RATES = ("host_steps_per_second", "usd_per_chip_hour")


def main(arguments: parse.Arguments) -> int:
    """Prints programs and predictions; returns the exit code. Raises UsageError for unknown chips or a wrong rate."""
    given: dict[str, Any] = {name: arguments.flags[name] for name in ("chips", *_RATES) if name in arguments.flags}
    if given.get("chips", DEFAULT_CHIPS) not in roofline.SLICES:
        raise errors.UsageError(f"--chips={given['chips']}: expected one of {', '.join(roofline.SLICES)}")
    for name in given.keys() & _RATES:
        given[name] = options.parse(name, given[name], float)
        if not 0 < given[name] < math.inf:
            raise errors.UsageError(f"--{name}={given[name]}: expected a number above 0")
    as_json = arguments.switch("json")
    stream = sys.stderr if as_json else sys.stdout
    print("compiling every program for the TPU; each may take minutes", file=stream, flush=True)
    preset, settings = arguments.flags.get("preset", ""), arguments.settings
    figures = run(preset=preset, settings=settings, report=benchmark.row_printer(stream), **given)
    benchmark.show(figures, stream)
    if as_json:
        print(json.dumps(figures))
    return 0


COMMAND = parse.Command(
    summary="Predicts a preset's memory, pace and cost on TPU chips that are not here, by the TPU's own compiler.",
    usage="[--preset=NAME] [--chips=CHIPS] [--SECTION.KEY=VALUE ...] [--json]",
    flags={
        "preset=NAME": f"preset to compile (default: {DEFAULT_PRESET})",
        f"chips={'|'.join(roofline.SLICES)}": f"the chips of a host (default: {DEFAULT_CHIPS})",
        "host_steps_per_second=N": "steps of host and environments (default: below)",
        "usd_per_chip_hour=USD": "a chip's price (default: no cost shown)",
        "json": "end with one line of JSON",
    },
    takes_settings=True,
    details=f"""
Needs the package jax[tpu] and no TPU. Memory in GB, gflop and moved_gb are of a call on each chip; roofline_ms is the
least time by the chip's published peaks; estimated_ms: by the compiler's cycles; replay_share: the share of the moved
bytes that grows with the replay; aliased_gb: arguments updated in place; needed_gb: all in memory; collectives: the
operations that send data between chips, whose time is not counted, and collective_mb what they bring to each.
--cluster.num_hosts=2, 4, 8, ...: of a slice of so many hosts with four chips each; steps are those of all hosts.
Predictions are upper bounds: the device's, cut by a host's, measured elsewhere:
{roofline.ATARI_STEPS_PER_SECOND:,.0f} steps of Atari a second, {roofline.TRANSPORT_STEPS_PER_SECOND:,.0f} of others.
estimated_steps_per_second comes from estimated_ms and is nearer. --replay.placement=auto counts as device.""",
    run=main,
)


if __name__ == "__main__":
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(parse.help_text("experiments/tpu_bounds.py", COMMAND).replace("seedzero ", "python ", 1))
    else:
        try:
            sys.exit(main(parse.read("experiments/tpu_bounds.py", COMMAND, sys.argv[1:])))
        except errors.Error as error:
            sys.exit(f"error: {error}")
