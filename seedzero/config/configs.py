"""The configuration: the sections that all agents share, and each agent's own.

A value is set by `--SECTION.KEY=VALUE`; `ALIASES` are the short forms. Flags and help texts are made from the fields.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, cast

from seedzero.config import (
    alphazero_config,
    apex_config,
    families,
    league_config,
    muzero_config,
    options,
    own_agents,
    ppo_config,
    r2d2_config,
    sac_config,
    seats_config,
    sections,
    shared,
    vtrace_config,
)
from seedzero.core import errors


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run. An agent is a field with its name, an `options.AgentSection`.

    A user's own agent, MODULE:OBJECT, has its own class (`kind_of`) with one more field.
    """

    OWN: ClassVar[str] = ""
    """The user's own agent, MODULE:OBJECT, whose settings this class has, or ""."""
    OWN_SECTION: ClassVar[str] = ""
    """The name of that field."""

    run: sections.RunConfig = sections.RunConfig()
    env: sections.EnvConfig = sections.EnvConfig()
    worker: sections.WorkerConfig = sections.WorkerConfig()
    transport: sections.TransportConfig = sections.TransportConfig()
    tls: sections.TlsConfig = sections.TlsConfig()
    serve: sections.ServeConfig = sections.ServeConfig()
    batcher: sections.BatcherConfig = sections.BatcherConfig()
    search: muzero_config.SearchSection = muzero_config.SearchSection()
    explore: muzero_config.ExploreConfig = muzero_config.ExploreConfig()
    network: shared.NetworkConfig = shared.NetworkConfig()
    muzero: muzero_config.MuZeroConfig = muzero_config.MuZeroConfig()
    alphazero: alphazero_config.AlphaZeroConfig = alphazero_config.AlphaZeroConfig()
    optimizer: shared.OptimizerConfig = shared.OptimizerConfig()
    reward: shared.RewardConfig = shared.RewardConfig()
    vtrace: vtrace_config.VTraceConfig = vtrace_config.VTraceConfig()
    apex: apex_config.ApexConfig = apex_config.ApexConfig()
    r2d2: r2d2_config.R2D2Config = r2d2_config.R2D2Config()
    ppo: ppo_config.PPOConfig = ppo_config.PPOConfig()
    sac: sac_config.SACConfig = sac_config.SACConfig()
    replay: sections.ReplayConfig = sections.ReplayConfig()
    reanalyse: muzero_config.ReanalyseConfig = muzero_config.ReanalyseConfig()
    league: league_config.LeagueConfig = league_config.LeagueConfig()
    seats: seats_config.SeatsConfig = seats_config.SeatsConfig()
    cluster: sections.ClusterConfig = sections.ClusterConfig()
    training: sections.TrainingConfig = sections.TrainingConfig()
    evaluation: sections.EvaluationConfig = sections.EvaluationConfig()
    checkpoint: sections.CheckpointConfig = sections.CheckpointConfig()
    bucket: sections.BucketConfig = sections.BucketConfig()
    metrics: sections.MetricsConfig = sections.MetricsConfig()

    def __post_init__(self) -> None:
        if self.run.agent not in (*agent_names(), self.OWN or None):
            meant = _COMMON_AGENTS.get(self.run.agent.lower().replace("-", "_"), "")
            close = [meant] if meant else difflib.get_close_matches(self.run.agent, agent_names(), n=1)
            hint = f"; did you mean {close[0]}?" if close else "."
            raise errors.ConfigError(
                f"unknown agent {self.run.agent!r}{hint} The agents are {', '.join(agent_names())}; one "
                "of your own is MODULE:OBJECT"
            )
        for name, choices in self.agent.CHOICES.items():
            section, _, key = name.partition(".")
            if (value := getattr(getattr(self, section), key)) not in choices:
                raise errors.ConfigError(
                    f"--{name} is {value!r}; of --agent={self.run.agent} choose one of {', '.join(choices)}"
                )

    @property
    def agent(self) -> options.AgentSection:
        """The settings of the chosen agent."""
        section: options.AgentSection = getattr(self, self.section)
        return section

    @property
    def section(self) -> str:
        """The name of the chosen agent's section."""
        return self.OWN_SECTION if self.run.agent == self.OWN else self.run.agent


def agent_names() -> list[str]:
    """Returns the agents' names, the default first."""
    return list(agent_sections())


def agent_sections() -> dict[str, options.AgentSection]:
    """Returns each agent's section with its defaults, by the agent's name."""
    fields = dataclasses.fields(Config)
    return {field.name: field.default for field in fields if isinstance(field.default, options.AgentSection)}


@functools.cache
def kind_of(agent: str) -> type[Config]:
    """Returns the class of an agent's configurations; imports the module of an agent MODULE:OBJECT.

    Raises:
      ConfigError: the module or the object is wrong.
    """
    if not own_agents.is_own(agent):
        return Config
    own = own_agents.load(agent)
    if hasattr(Config, own.name):
        raise errors.ConfigError(f"--agent={agent}: its name {own.name!r} is that of other settings; choose another")
    return _kind(agent, own.name, own.settings())


def kind_of_saved(values: Mapping[str, options.Value]) -> type[Config]:
    """Returns a class for saved values by SECTION.KEY without importing anything.

    Own settings have their values' types.
    """
    agent = str(values.get("run.agent", ""))
    if not own_agents.is_own(agent):
        return Config
    own = {name: value for name, value in values.items() if "." in name and name.partition(".")[0] not in _SECTIONS}
    section = next(reversed(own), "own").partition(".")[0]  # the last one, as in `_kind`; others were removed
    keys = {name.partition(".")[2]: value for name, value in own.items() if name.startswith(f"{section}.")}
    taken = [key for key in keys if key[:1] == "_" or hasattr(options.AgentSection, key)]
    if taken or section[:1] == "_" or hasattr(Config, section):
        raise errors.ConfigError(f"--agent={agent} has an impossible setting: {next(reversed(own))}")
    declared = [(key, type(value), options.on_resume(value, "of an agent of your own")) for key, value in keys.items()]
    made = dataclasses.make_dataclass("SavedSection", declared, bases=(options.AgentSection,), frozen=True)
    return _kind(agent, section, made())


def loaded(config: Config) -> Config:
    """Returns a saved configuration with its agent's own section. Imports its module, so consent must come first.

    Raises:
      ConfigError: the module, the object, or a saved value is wrong.
    """
    whole = kind_of(config.run.agent)
    return config if isinstance(config, whole) else override(whole(), flatten(config))


def replaced(config: Config, names: Mapping[str, str]) -> Config:
    """Returns a saved configuration with other names of code, by SECTION.KEY, without importing anything."""
    values = {**flatten(config), **names}
    return override(kind_of_saved(values)(), values)


def _kind(agent: str, name: str, section: options.AgentSection) -> type[Config]:
    of_class = {"OWN": agent, "OWN_SECTION": name, "__doc__": f"All settings of a run of {agent}."}
    made = dataclasses.make_dataclass(
        "OwnConfig", [(name, type(section), section)], bases=(Config,), namespace=of_class, frozen=True
    )
    return cast("type[Config]", made)


_SECTIONS = frozenset(field.name for field in dataclasses.fields(Config))
SHARED: Mapping[str, options.Section] = {
    "optimizer": shared.OptimizerConfig(),
    "network": shared.NetworkConfig(),
    "reward": shared.RewardConfig(),
}
"""Sections whose defaults an agent has, `options.AgentSection.DEFAULTS`, with those of the others."""


@functools.cache
def of_agent(agent: str, like: Any = None) -> Config:
    """Returns an agent's default settings. like: the class; None for the agent's."""
    return override((like or kind_of(agent))(), {"run.agent": agent})


def is_read(name: str, of: str | Config) -> bool:
    """Returns whether an agent, or that of a configuration, reads the setting SECTION.KEY."""
    config = of_agent(of) if isinstance(of, str) else of
    section, own = name.partition(".")[0], config.agent
    sections = [field.name for field in dataclasses.fields(config) if isinstance(field.default, options.AgentSection)]
    agents: list[options.AgentSection] = [getattr(config, other) for other in sections]
    if section in sections or any(section in other.SECTIONS for other in agents):
        return name in own.DEFAULTS or (section in (config.section, *own.SECTIONS) and name not in own.UNREAD)
    return own.SAMPLES or section != "replay" or name == "replay.num_slots"


def mark(name: str, kind: type[Config] = Config) -> str:
    """Returns the mark of a setting SECTION.KEY: `options.START`, USUAL or ADVANCED."""
    section, _, key = name.partition(".")
    own: options.Section = getattr(kind, section)
    is_advanced = key in own.ADVANCED.split()
    return options.START if key in own.START.split() else options.ADVANCED if is_advanced else options.USUAL


_OPTIONAL = ("league", "seats", "cluster", "tls", "serve", "bucket")
"""Sections that matter only to runs that change some of their settings."""


def applies(name: str, values: Mapping[str, object]) -> bool:
    """Returns whether a setting can matter to a run with these values: it is not one of other families or of a league
    that the run has not. values: by SECTION.KEY; what is missing has its default.
    """
    section = name.partition(".")[0]
    own = {key: field.default for key, field in fields().items() if key.startswith(f"{section}.")}
    is_left_out = section in _OPTIONAL and all(values.get(key, default) == default for key, default in own.items())
    return not is_left_out and families.is_read(name, str(values.get("env.id", "")))


def check_read(given: Collection[str], agent: str) -> None:
    """Rejects settings SECTION.KEY that the agent does not read.

    Raises:
      ConfigError: with the agent's setting of the same name, if any, and the agents that read the given one.
    """
    for name in given:
        if not is_read(name, agent):
            readers, own = _readers(name), counterpart(name, agent)
            raise errors.ConfigError(
                f"--{name} is a setting of {' and '.join(readers)}, but this is --agent={agent}; "
                f"{f'give --{own}' if own else 'leave it out'}, or give --agent={'|'.join(readers)}"
            )


def counterpart(name: str, agent: str) -> str:
    """Returns the agent's setting with the same name as another agent's SECTION.KEY, or ""."""
    config = of_agent(agent)
    key, known = name.rpartition(".")[2], fields(type(config))
    own = (f"{section}.{key}" for section in (config.section, "replay", *config.agent.SECTIONS, *SHARED))
    return next((other for other in own if other in known and is_read(other, agent)), "")


def _readers(name: str) -> list[str]:
    return [agent for agent in agent_names() if is_read(name, agent)]


ALIASES: Mapping[str, str] = {
    "agent": "run.agent",
    "env": "env.id",
    "init_from": "run.init_from",
    "workers": "worker.num",
    "listen": "transport.listen",
    "token_file": "transport.token_file",
    "insecure": "transport.insecure",
    "metrics_port": "metrics.port",
    "metrics_host": "metrics.host",
    "seed": "run.seed",
    "deterministic": "run.deterministic",
    "max_env_steps": "run.max_env_steps",
    "max_updates": "run.max_updates",
    "max_seconds": "run.max_seconds",
    "stop_at_return": "run.stop_at_return",
    "metrics.info_keys": "env.info_keys",
    "dmlab.level_cache": "env.level_cache",
    "dmlab.level_seeds": "env.level_seeds",
}


_SHORT = {name: alias for alias, name in ALIASES.items()}


def flag(name: str) -> str:
    """Returns the flag of a setting, the short one if possible: --seed for run.seed."""
    return f"--{_SHORT.get(name, name)}"


def flatten(config: Config) -> dict[str, options.Value]:
    """Returns every value by its name SECTION.KEY, in the order of the fields."""
    return {
        f"{section.name}.{field.name}": getattr(getattr(config, section.name), field.name)
        for section in dataclasses.fields(config)
        for field in dataclasses.fields(getattr(config, section.name))
    }


def fields(kind: type[Config] = Config) -> dict[str, dataclasses.Field[Any]]:
    """Returns every field by the name SECTION.KEY; help, unit and choices are in the metadata."""
    return {
        f"{section.name}.{field.name}": field
        for section in dataclasses.fields(kind)
        for field in dataclasses.fields(section.default)  # type: ignore[arg-type]
    }


def override(config: Config, values: Mapping[str, options.Value | str]) -> Config:
    """Returns the configuration with some values replaced. Another agent brings its own defaults of shared settings.

    values: by SECTION.KEY or alias; strings are parsed by the field's type.

    Raises:
      ConfigError: an unknown key (with the nearest right one), a wrong type, an impossible value.
    """
    agent = str(values.get("run.agent", values.get("agent", config.run.agent)))
    if own_agents.is_own(agent) and agent != config.OWN:
        config = kind_of(agent)(**{section: getattr(config, section) for section in _SECTIONS})
    known = fields(type(config))
    sections: dict[str, Any] = {}
    if agent != config.run.agent:
        section = config.OWN_SECTION if agent == config.OWN else agent
        sections |= SHARED
        values = {**getattr(getattr(config, section, None), "DEFAULTS", {}), **values}
    changes: dict[str, dict[str, options.Value]] = {}
    for key, raw in values.items():
        name = ALIASES.get(key, key)
        if name not in known:
            raise errors.ConfigError(
                f"unknown setting --{key}={raw}{suggestion(key, [*known, *ALIASES], config.run.agent)}"
            )
        section, _, field_name = name.partition(".")
        changes.setdefault(section, {})[field_name] = read_value(name, known[name], raw)
    for section, changed in changes.items():
        try:
            sections[section] = dataclasses.replace(sections.get(section, getattr(config, section)), **changed)
        except errors.ConfigError as error:
            raise errors.ConfigError(f"--{section}.{error}") from None
    return dataclasses.replace(config, **sections)


def read_value(name: str, field: dataclasses.Field[Any], raw: options.Value | str) -> options.Value:
    """Returns the value of a setting SECTION.KEY. Raises ConfigError for a wrong type, choice or bound."""
    value: options.Value = options.parse(_SHORT.get(name, name), raw, type(field.default))
    try:
        options.check(field, value)
    except errors.ConfigError as error:
        raise errors.ConfigError(f"--{name.partition('.')[0]}.{error}") from None
    return value


LISTED = "`seedzero config --preset=NAME` lists settings, with --advanced all"


def suggestion(key: str, names: Collection[str], agent: str, everything: str = LISTED) -> str:
    """Ends a message about an unknown setting with the nearest of `names`, or with where the full list is.

    Settings that the agent reads come first; for an unknown agent,
    those of any agent count. A key that names another agent's section, or exactly another agent's setting, means that
    agent.
    """
    section, dot, tail = key.rpartition(".")
    common = _COMMON_NAMES.get(tail.lower().replace("-", "_"), tail)
    key = common if "." in common else section + dot + common
    known = fields(kind_of(agent))
    agents = [*agent_names(), *filter(own_agents.is_own, [agent])]
    meant = section if section in agent_names() else agent
    read = [name for name in names if name not in known or meant not in agents or is_read(name, meant)]
    name = nearest(key, read if _of_tail(key, read) else _of_tail(key, names) or read, cutoff=0.4)
    if not name:
        return f"; {everything}"
    if name not in known or agent not in agents or is_read(name, agent):
        return f"; did you mean --{name}?"
    return f"; did you mean --{name}? It is for --agent={'|'.join(_readers(name))}"


_COMMON_AGENTS: Mapping[str, str] = {
    "dqn": "apex",
    "ddqn": "apex",
    "double_dqn": "apex",
    "rainbow": "apex",
    "apex_dqn": "apex",
    "drqn": "r2d2",
    "impala": "vtrace",
    "a2c": "ppo",
    "a3c": "ppo",
    "ddpg": "sac",
    "td3": "sac",
    "efficientzero": "muzero",
}
"""Algorithms of other programs, and the agent here that learns most like them."""
_COMMON_NAMES: Mapping[str, str] = {
    "lr": "learning_rate",
    "alpha": "learning_rate",
    "gamma": "discount",
    "ent_coef": "entropy_weight",
    "entropy_coef": "entropy_weight",
    "max_grad_norm": "clip_norm",
    "buffer_size": "capacity",
    "replay_size": "capacity",
    "total_timesteps": "max_env_steps",
    "timesteps": "max_env_steps",
    "num_envs": "envs_per_group",
    "n_envs": "envs_per_group",
    "num_workers": "workers",
    "simulations": "num_simulations",
    "env_id": "env",
    "log_dir": "run_dir",
    "logdir": "run_dir",
    "output_dir": "run_dir",
    "track": "metrics.wandb",
    "use_wandb": "metrics.wandb",
    "wandb_project": "metrics.wandb",
    "wandb_project_name": "metrics.wandb",
    "temperature": "search.temperature",
}
"""What other programs call a setting, and its name here."""


def nearest(key: str, names: Collection[str], cutoff: float = 0.6) -> str | None:
    """Returns the name most like `key`, preferring a section much like its own, or None. cutoff: likeness, to 1."""
    tails = _of_tail(key, names)
    close = difflib.get_close_matches(key, tails, n=1, cutoff=0.9) if "." in key else []
    return next(iter(close or tails or difflib.get_close_matches(key, names, n=1, cutoff=cutoff)), None)


def _of_tail(key: str, names: Collection[str]) -> list[str]:
    return [name for name in names if name.rpartition(".")[2] == key.rpartition(".")[2]]
