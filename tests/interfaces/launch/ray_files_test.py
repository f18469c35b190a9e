"""The files for `ray up` are checked by Ray, by the clouds' own descriptions of their requests, and by `ray start`."""

from __future__ import annotations

import ast
import copy
import json
import pathlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[3]
FILES = ("ray_gcp.yaml", "ray_aws.yaml")

# Ray and what it brings warn of each other.
pytestmark = pytest.mark.filterwarnings("ignore")

Config = dict[str, Any]


def _needs(module: str, package: str) -> Any:
    return pytest.importorskip(module, reason=f"{package} is not installed: pip install '.[ray-up]'")


def _load(name: str) -> Config:
    yaml = _needs("yaml", "Ray")
    content = yaml.safe_load((ROOT / "cluster" / name).read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def check(config: Config) -> None:
    """Raises what is wrong with a file."""
    _check_by_ray(config)
    node_types = config["available_node_types"]
    check_node = {"gcp": _check_gcp, "aws": _check_aws}[config["provider"]["type"]]
    for name, node_type in node_types.items():
        check_node(name, node_type["node_config"])
    for command in [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]]:
        _check_ray_command(command)
    _check_extras([*config["setup_commands"], *config["head_setup_commands"]])


def _check_by_ray(config: Config) -> None:
    util = _needs("ray.autoscaler._private.util", "Ray")
    util.validate_config(util.prepare_config(copy.deepcopy(config)))
    # Ray lets any key of these pass.
    file = pathlib.Path(util.__file__).parents[1] / "ray-schema.json"
    schema = json.loads(file.read_text(encoding="utf-8"))["properties"]
    _check_keys("provider", config["provider"], schema["provider"]["properties"])
    (node_schema,) = schema["available_node_types"]["patternProperties"].values()
    for name, node_type in config["available_node_types"].items():
        _check_keys(name, node_type, node_schema["properties"])


def _check_keys(where: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    unknown = given.keys() - known.keys()
    assert not unknown, f"{where}: unknown {sorted(unknown)}"


def _check_gcp(name: str, node: Config) -> None:
    documents = _needs("googleapiclient.discovery_cache", "google-api-python-client")
    # Ray asks the TPU API for a node with this key, and Compute Engine for every other.
    document, kind = ("tpu.v2alpha1", "Node") if "acceleratorType" in node else ("compute.v1", "Instance")
    file = pathlib.Path(documents.__file__).parent / "documents" / f"{document}.json"
    schemas = json.loads(file.read_text(encoding="utf-8"))["schemas"]
    problems = list(_gcp_problems(f"{name}.node_config", node, schemas[kind], schemas))
    assert not problems, "; ".join(problems)


_TYPES = {"string": str, "integer": int, "boolean": bool, "number": float}


def _gcp_problems(where: str, value: Any, schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a value has that Google's description of the request does not."""
    schema = schemas[schema["$ref"]] if "$ref" in schema else schema
    if schema["type"] == "object":
        if not isinstance(value, dict):
            yield f"{where} is {value!r}, not an object"
            return
        for key, inner in value.items():
            known = schema.get("properties", {}).get(key)
            if known is None:
                yield f"{where}: unknown {key}"
            else:
                yield from _gcp_problems(f"{where}.{key}", inner, known, schemas)
    elif schema["type"] == "array":
        if not isinstance(value, list):
            yield f"{where} is {value!r}, not a list"
            return
        for index, inner in enumerate(value):
            yield from _gcp_problems(f"{where}[{index}]", inner, schema["items"], schemas)
    else:
        is_int64 = schema.get("format") == "int64" and isinstance(value, int)  # a string in JSON only
        if not is_int64 and not isinstance(value, _TYPES[schema["type"]]):
            yield f"{where} is {value!r}, not a {schema['type']}"
        if "enum" in schema and value not in schema["enum"]:
            yield f"{where} is {value!r}, none of {', '.join(schema['enum'])}"


def _check_aws(name: str, node: Config) -> None:
    session = _needs("botocore.session", "boto3")
    from botocore import validate

    shape = session.get_session().get_service_model("ec2").operation_model("RunInstances").input_shape
    report = validate.ParamValidator().validate({**node, "MinCount": 1, "MaxCount": 1}, shape)
    assert not report.has_errors(), f"{name}.node_config: {report.generate_report()}"


def _check_ray_command(command: str) -> None:
    """Has Ray's own parser read the commands of Ray in a line of shell."""
    scripts = _needs("ray.scripts.scripts", "Ray")
    words = shlex.split(command.replace(";", " ; "))
    while "ray" in (names := [word.rpartition("/")[2] for word in words]):
        words = words[names.index("ray") + 1 :]
        end = words.index(";") if ";" in words else len(words)
        name, arguments = words[0], words[1:end]
        scripts.cli.commands[name].make_context(name, list(arguments))


def _check_extras(commands: list[str]) -> None:
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    assigned = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    known = {ast.literal_eval(key) for key in assigned["EXTRAS"].keys}  # type: ignore[attr-defined]
    asked = {extra for found in re.findall(r"seedzero\[([^\]]+)\]", " ".join(commands)) for extra in found.split(",")}
    assert asked and asked <= known, f"extras {sorted(asked - known)} are unknown"


@pytest.mark.thorough
@pytest.mark.parametrize("name", FILES)
def test_a_file_for_ray_up_is_as_ray_and_the_cloud_want_it(name: str) -> None:
    check(_load(name))


@pytest.mark.parametrize("name", FILES)
def test_the_learner_and_workers_find_room_on_the_nodes_that_the_file_describes(name: str) -> None:
    types = _load(name)["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0}
    for kind in ("learner", "workers"):
        machine = types[kind]["node_config"].get("machineType") or types[kind]["node_config"]["InstanceType"]
        cores = {"4xlarge": 16}.get(machine.rpartition(".")[2]) or int(machine.rpartition("-")[2])
        assert types[kind]["resources"]["CPU"] == cores
    assert types["learner"]["resources"]["GPU"] == 1


def test_a_learner_with_a_tpu_finds_all_chips_of_one_host_and_cannot_do_without() -> None:
    config = _load("ray_gcp.yaml")
    node_type = config["available_node_types"]["learner-tpu"]
    gcp = _needs("ray.autoscaler._private.gcp.config", "Ray")
    assert gcp.get_node_type(node_type["node_config"]).value == "tpu"
    assert gcp._is_single_host_tpu(node_type["node_config"])
    assert node_type["resources"] == {"CPU": 112, "TPU": gcp._get_num_tpu_chips(node_type["node_config"])}
    assert " then export JAX_PLATFORMS=tpu,cpu; " in config["worker_start_ray_commands"][-1]
    assert any("if [ -e /dev/accel0 ]" in line and "[ray,tpu]" in line for line in config["setup_commands"])


@pytest.mark.parametrize("name", FILES)
def test_the_learner_must_find_its_gpu(name: str) -> None:
    assert " JAX_PLATFORMS=cuda,cpu; " in _load(name)["worker_start_ray_commands"][-1]


def _set(*path: Any, value: Any) -> Callable[[Config], None]:
    def change(config: Any) -> None:
        for key in path[:-1]:
            config = config[key]
        config[path[-1]] = value

    return change


NODE = ("available_node_types", "workers")
MACHINE = (*NODE, "node_config")
TPU = ("available_node_types", "learner-tpu", "node_config")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("ray_gcp.yaml", _set("provider", "zone", value="us-central1-a"), "provider: unknown .'zone'"),
        ("ray_gcp.yaml", _set(*MACHINE, "machine_type", value="e2-micro"), "node_config: unknown machine_type"),
        ("ray_gcp.yaml", _set(*MACHINE, "scheduling", "provisioningModel", value="spot"), "'spot', none of .*SPOT"),
        ("ray_gcp.yaml", _set(*TPU, "serviceAccount", "scopes", value=[]), "serviceAccount: unknown scopes"),
        ("ray_gcp.yaml", _set("head_start_ray_commands", 1, value="ray start --head --prot=6379"), "--prot"),
        ("ray_gcp.yaml", _set("setup_commands", 3, value="pip install seedzero[rays]"), "extras .'rays'. are unknown"),
        ("ray_aws.yaml", _set(*MACHINE, "InstanceTyp", value="c6i.large"), 'Unknown parameter .*"InstanceTyp"'),
    ],
)
def test_whatever_is_misspelt_is_caught(name: str, change: Callable[[Config], None], text: str) -> None:
    config = _load(name)
    change(config)
    with pytest.raises(Exception, match=f"(?s){text}"):
        check(config)
