"""What is installed where; the scripts themselves run from a clean clone in every CI run."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig

import pytest

from seedzero.config import configs, families
from seedzero.envs import gym_env

ROOT = pathlib.Path(__file__).parents[1]


def _requirements(text: str) -> list[str]:
    return sorted(line.split("#")[0].strip() for line in text.splitlines() if line.split("#")[0].strip())


def _run_local(*args: str, root: pathlib.Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(root / "run_local.sh"), *args],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, **environment},
    )


def test_a_worker_s_machine_gets_what_setup_py_says() -> None:
    asked = _requirements((ROOT / "requirements" / "worker.in").read_text())
    assert asked == sorted(_of_setup_py("WORKER"))


def _of_setup_py(block: str) -> list[str]:
    """Returns the requirements that setup.py assigns to the name."""
    assigned = [node for node in ast.parse((ROOT / "setup.py").read_text()).body if isinstance(node, ast.Assign)]
    (asked,) = [node.value for node in assigned if ast.unparse(node.targets[0]) == block]
    found: list[str] = ast.literal_eval(asked)
    return found


def test_images_get_every_file_that_setup_py_reads() -> None:
    read = re.findall(r'ROOT / "([\w.-]+)"', (ROOT / "setup.py").read_text())
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    assert {"README.md", "protos", "seedzero"} <= set(read)
    assert not [name for name in read if f"!{name}" not in sent]


def _asked() -> dict[str, str]:
    """Returns what setup.py asks for: name with extras -> bounds."""
    found = re.findall(r'"(\w[\w.-]*(?:\[[\w,-]+\])?)([<>=][^"]*)"', (ROOT / "setup.py").read_text())
    assert dict(found)["gymnasium[box2d]"] == ">=1.4,<2"
    return dict(found)


def test_hints_name_packages_of_setup_py() -> None:
    named = {package for family in families.FAMILIES for offer in family.offers for package in offer.needs}
    named |= {package for bringers in gym_env._BRINGERS.values() for package in bringers}
    for file in [*(ROOT / "seedzero").rglob("*.py"), *(ROOT / "experiments").glob("*.py")]:
        for names in re.findall(r"\.install_command\(([^()*]+)\)", file.read_text()):
            named |= set(re.findall(r"""["']([^"']+)["']""", names))
        assert "pip install '" not in file.read_text(), "packages.install_command names this Python and the versions"
    assert {"wandb", "ray[default]", "jax[tpu]", "tensorstore", "MinAtar"} <= named <= set(_asked())


@pytest.mark.parametrize(
    "file",
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda file: file.name,
)
def test_documents_install_packages_as_the_program_s_messages_do(file: pathlib.Path) -> None:
    asked = _asked()
    for before, words in re.findall(r"(\S*) ?\bpip install ([^`#\n&(]+)", file.read_text()):
        names = [word for word in shlex.split(words) if not word.startswith("-")]
        if any(name.startswith((".", "requirements/")) for name in names):  # a clone
            continue
        assert before in ("-m", "RUN"), (
            f"python -m pip install {words}"
        )  # RUN: a Dockerfile's, whose pip is the image's
        for name in names:
            package, bounds = re.fullmatch(r"([^<>=]+)(.*)", name).groups()  # type: ignore[union-attr]
            assert set(bounds.split(",")) <= {"", *asked[package].split(",")}, name


LOCKS = {
    "build": {"setuptools", "grpcio-tools"},
    "worker": {"ale-py", "grpcio", "gymnasium", "numpy", "protobuf"},
    "worker-box2d": {"box2d"},
    "worker-envpool": {"envpool", "envpool-assets", "dm-env", "optree"},
    "worker-games": {"open-spiel"},
    "worker-minigrid": {"minigrid"},
    "worker-mujoco": {"mujoco"},
    "worker-openenv": {"websockets"},
    "worker-pettingzoo": {"mpe2", "pettingzoo"},
    "worker-pgx": {"pgx", "jax", "jaxlib"},
    "worker-popgym": {"popgym"},
    "worker-procgen": {"envpool", "pyqt5-qt5"},
    "worker-vizdoom": {"opencv-python-headless", "vizdoom"},
    "learner": {"jax", "jaxlib", "flax", "grpcio", "tensorboard"},
    "learner-cuda": {"jax-cuda12-plugin", "nvidia-cudnn-cu12"},
    "learner-ray": {"ray"},
    "learner-tpu": {"libtpu"},
}
"""requirements/NAME.txt -> some of what must be in it."""


def _locked(name: str) -> dict[str, str]:
    """Returns the packages of a lock by what is pinned, version and platform; hashes must follow each."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    found = re.findall(r"^([a-z0-9-]+)==(\S+(?: ; .*)?) \\\n    --hash=sha256:", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", " "))]
    assert len(found) == len(lines) >= 1
    assert "://" not in text and "--index" not in text and "--find-links" not in text
    return {f"{package} {version}": package for package, version in found}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_and_hashes_every_package_and_names_no_host(name: str) -> None:
    assert set(_locked(name).values()) >= LOCKS[name]


@pytest.mark.parametrize(
    ("block", "name"),
    [
        ("WORKER", "worker"),
        ("WORKER", "learner"),
        ("ENVPOOL", "worker-envpool"),
        ("GAMES", "worker-games"),
        ("PETTINGZOO", "worker-pettingzoo"),
        ("PGX", "worker-pgx"),
        ("LEARNER", "learner"),
        ("TENSORBOARD", "learner"),
        ("RAY", "learner-ray"),
    ],
)
def test_what_setup_py_asks_for_is_locked(block: str, name: str) -> None:
    packages = {re.sub("[_.-]+", "-", re.split(r"[^\w.-]", text)[0]).lower() for text in _of_setup_py(block)}
    assert packages and packages <= set(_locked(name).values()), "scripts/lock writes what setup.py says"


def test_every_lock_is_known_here() -> None:
    assert {path.stem for path in (ROOT / "requirements").glob("*.txt")} == set(LOCKS)


def test_a_worker_s_lock_has_no_jax() -> None:
    assert not {"jax", "jaxlib", "flax"} & {*_locked("worker").values(), *_locked("worker-envpool").values()}


def test_what_two_locks_have_they_have_in_the_same_version() -> None:
    locks = [_locked(name) for name in LOCKS]
    pins = [{package: _of(lock, package) for package in lock.values()} for lock in locks]
    common = [(one, other, package) for one in pins for other in pins for package in one if package in other]
    assert len(common) > sum(len(one) for one in pins), "build, worker and learner have some in common"
    assert not [package for one, other, package in common if one[package] != other[package]]


def _of(lock: dict[str, str], package: str) -> set[str]:
    return {pin for pin, name in lock.items() if name == package}


@pytest.mark.parametrize("name", [name for name in LOCKS if "-" in name])
def test_an_extra_s_lock_comes_on_top_of_the_learner_s_or_the_worker_s(name: str) -> None:
    assert not set(_locked(name).values()) & set(_locked(name.partition("-")[0]).values())


def test_run_local_without_arguments_explains_itself() -> None:
    done = _run_local()
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ./run_local.sh GAME [AGENT] [--key=value ...]")
    assert _run_local("--help").returncode == 0
    listed = re.search(r"^AGENT.*?^$", done.stderr, re.MULTILINE | re.DOTALL)
    assert listed and re.findall(r"^  ([a-z0-9]+) ", listed[0], re.MULTILINE) == configs.agent_names()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["sokoban"], "'sokoban'.* catch, cartpole"),
        (["soccer"], r"did you mean football .*football:5_vs_5"),
        (["Cartpole"], " cartpole"),
        (["doom"], "envpool:ID, .* envpool:MiniGrid-Empty-8x8-v0.* catch, cartpole"),
        (["connect4"], " connect_four"),
        (["league", "go"], "'go' of a league; .* tictactoe, connect_four, kuhn, leduc, brps, goofspiel and soccer"),
        (["league", "connect_four", "impala"], "'impala'; .*muzero alphazero vtrace apex"),
        (["--preset=catch"], "the game comes first, then --preset=catch"),
        (["catch"], "SEEDZERO_DEVICE=gpu: expected cpu, cuda or tpu"),
    ],
)
def test_run_local_refuses_before_it_installs(args: list[str], message: str) -> None:
    done = _run_local(*args, SEEDZERO_DEVICE="gpu" if args == ["catch"] else "cpu")
    assert done.returncode == 2
    assert re.search(message, done.stderr)
    assert "installing" not in done.stderr


@pytest.fixture
def copy(tmp_path: pathlib.Path) -> pathlib.Path:
    """The scripts, beside a .venv whose python records what it is asked to do."""
    for name in ("run_local.sh", "setup.py", "pyproject.toml", "scripts/venv.sh", "protos", "requirements"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    stub = tmp_path / "seedzero" / "transport" / "inference_pb2_grpc.py"
    stub.parent.mkdir(parents=True)
    stub.touch()
    record = f'echo "$@" >> "{tmp_path}/log"'
    _script(tools / "python", f'case "$1" in -m) {record} ;; *) exec {sys.executable} "$@" ;; esac')
    _script(tools / "seedzero", 'echo "$@"')
    return tmp_path


def _script(path: pathlib.Path, text: str) -> None:
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def _log(copy: pathlib.Path) -> str:
    return (copy / "log").read_text() if (copy / "log").exists() else ""


EVIDENCE = {
    "box2d": "worker-box2d.txt",
    "cuda": "learner-cuda.txt",
    "envpool": "worker-envpool.txt",
    "games": "worker-games.txt",
    "minatar": "MinAtar",
    "minigrid": "worker-minigrid.txt",
    "mujoco": "worker-mujoco.txt",
    "page": "uvicorn",
    "pgx": "worker-pgx.txt",
    "popgym": "worker-popgym.txt",
    "tpu": "learner-tpu.txt",
}
"""An extra -> the lock file or the package of it that an installation names."""


def _extras(copy: pathlib.Path) -> set[str]:
    """Returns the extras that were installed, by what pip was asked for."""
    words = [re.split(r"[<>=]", word.rpartition("/")[2])[0] for word in _log(copy).split()]
    return {extra for extra, name in EVIDENCE.items() if name in words}


def _named(extras: str) -> set[str]:
    return set(filter(None, extras.split(",")))


def _path_without_uv() -> str:
    return os.pathsep.join(
        folder for folder in os.environ["PATH"].split(os.pathsep) if not (pathlib.Path(folder) / "uv").exists()
    )


CPU = {"SEEDZERO_DEVICE": "cpu", "PATH": _path_without_uv()}


def test_run_local_installs_once_and_again_when_what_it_installs_changes(copy: pathlib.Path) -> None:
    first = _run_local("catch", "--seed=1", root=copy, **CPU)
    assert (first.returncode, first.stdout) == (0, "train --preset=catch --seed=1\n")
    assert re.search(f"installed; .*: . {copy}/.venv/bin/activate\n", first.stderr)
    assert f"--editable {copy}\n" in _log(copy)
    installed = _log(copy)
    assert "installed" not in _run_local("catch", root=copy, **CPU).stderr
    assert _log(copy) == installed
    for name in ("setup.py", "requirements/learner.txt"):
        with (copy / name).open("a") as file:
            file.write("# changed\n")
        assert "installed;" in _run_local("catch", root=copy, **CPU).stderr


def test_packages_come_from_the_locks_and_other_extras_are_constrained(copy: pathlib.Path) -> None:
    _run_local("hex", "--page=0", root=copy, **CPU)
    hashed, project, others = [line.removeprefix("pip install ") for line in re.findall("pip install .*", _log(copy))]
    locks = [f"--requirement {copy}/requirements/{name}.txt" for name in ("build", "learner", "worker-pgx")]
    assert hashed.endswith(" ".join(["--no-deps --require-hashes", *locks]))
    assert project.endswith(f"--no-deps --no-build-isolation --editable {copy}")
    assert re.search(rf"--constraint {copy}/\.venv/constraints\.txt starlette<2,>=\S+ uvicorn<1,>=\S+$", others)
    pins = (copy / ".venv" / "constraints.txt").read_text().splitlines()
    assert set(pins) == {*_locked_lines("build"), *_locked_lines("learner"), *_locked_lines("worker-pgx")}


def _locked_lines(name: str) -> list[str]:
    return [pin.replace(f"{package} ", f"{package}==", 1) for pin, package in _locked(name).items()]


def test_uv_installs_the_same_where_it_is_there(copy: pathlib.Path) -> None:
    _run_local("tictactoe", "--page=0", root=copy, **CPU)
    by_pip = re.findall("pip install --quiet --disable-pip-version-check (.*)", _log(copy))
    (copy / "log").unlink()
    for marker in (copy / ".venv").glob("installed-*"):
        marker.unlink()
    _script(copy / ".venv" / "bin" / "uv", f'echo "uv $@" >> "{copy}/log"')
    path = f"{copy}/.venv/bin{os.pathsep}{_path_without_uv()}"
    _run_local("tictactoe", "--page=0", root=copy, SEEDZERO_DEVICE="cpu", PATH=path)
    by_uv = re.findall(rf"uv pip install --quiet --python {copy}/\.venv/bin/python (.*)", _log(copy))
    assert by_uv == by_pip and len(by_uv) == 3 == len(_log(copy).splitlines())


@pytest.mark.thorough
@pytest.mark.parametrize("failing", ["--require-hashes", "--editable", "--constraint"])
def test_an_installation_that_fails_is_tried_again(failing: str, copy: pathlib.Path) -> None:
    python = copy / ".venv" / "bin" / "python"
    works = python.read_text()
    python.write_text(works.replace("-m)", f'-m) case "$*" in *{failing}*) exit 1 ;; esac;'))
    done = _run_local("tictactoe", "--page=0", root=copy, **CPU)
    assert (done.returncode, done.stdout) == (1, "") and not [*(copy / ".venv").glob("installed-*")]
    python.write_text(works)
    assert _run_local("tictactoe", "--page=0", root=copy, **CPU).returncode == 0


@pytest.mark.thorough
def test_the_package_is_found_beside_its_clone_and_nothing_else_of_it(tmp_path: pathlib.Path) -> None:
    clone, venv = tmp_path / "seedzero", tmp_path / "venv"
    shutil.copytree(ROOT / "protos", clone / "protos")
    (clone / "docker").mkdir()
    (clone / "seedzero" / "transport").mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    (clone / "seedzero" / "__init__.py").write_text('__version__ = "1.2"\nload = 1\n')
    (clone / "seedzero" / "transport" / "__init__.py").touch()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    # What this Python has installed, such as setuptools, but not what its own .pth files add.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = str(venv / "bin" / "python")
    words = ["--quiet", "--no-deps", "--no-build-isolation", "--editable", str(clone)]
    subprocess.run([python, "-m", "pip", "install", *words], check=True)
    script = tmp_path / "beside.py"
    script.write_text(
        "import importlib.util, seedzero, seedzero.transport\n"
        "print(seedzero.load, seedzero.__file__, importlib.util.find_spec('docker'))\n"
    )
    found = subprocess.run([python, str(script)], check=True, capture_output=True, text=True).stdout
    assert found == f"1 {clone}/seedzero/__init__.py None\n"


def test_an_extra_without_a_lock_names_packages_and_no_conditions() -> None:
    found = importlib.metadata.requires("seedzero") or []
    assert [line for line in found if "; extra == " in line]
    assert all(re.fullmatch(r'[^;]+(; extra == "[\w-]+")?', line) for line in found), "scripts/venv.sh reads no other"


def test_run_local_installs_again_where_another_extra_s_installation_came_between(copy: pathlib.Path) -> None:
    def num_installed(device: str) -> int:
        _run_local("catch", root=copy, **{**CPU, "SEEDZERO_DEVICE": device})
        return _log(copy).count("--editable")

    assert [num_installed(device) for device in ("cpu", "cuda", "cpu", "cuda")] == [1, 2, 2, 2]
    proto = next((copy / "protos").rglob("*.proto"))
    text = proto.read_text()
    proto.write_text(text + "// of another commit\n")
    assert num_installed("cuda") == 3
    proto.write_text(text)
    assert num_installed("cpu") == 4


def test_a_clone_that_was_moved_is_installed_anew(copy: pathlib.Path) -> None:
    moved = copy.with_name(f"{copy.name}-moved")
    _run_local("catch", root=copy, **CPU)
    assert "reinstall" not in _log(copy)
    shutil.copytree(copy, moved)
    _run_local("catch", root=moved, **CPU)
    again = _log(copy).count("--force-reinstall")
    assert again == 2 and f"--force-reinstall --no-deps --no-build-isolation --editable {moved}\n" in _log(copy)
    _run_local("gym:LunarLander-v3", root=moved, **CPU)
    assert _log(copy).count("reinstall") == again and _extras(copy) == {"box2d"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("args", "device", "extras", "command"),
    [
        (["atari", "--env=atari:Pong"], "cuda", "cuda", "--preset=atari --env=atari:Pong"),
        (["atari:Breakout", "muzero"], "tpu", "tpu", "--env=atari:Breakout --agent=muzero"),
        (["gym:my_module:My-v0"], "cpu", "", "--env=gym:my_module:My-v0"),
        (["gym:LunarLander-v3"], "cuda", "cuda,box2d", "--env=gym:LunarLander-v3"),
        (["tictactoe", "--page=0"], "cpu", "games,page", "--preset=tictactoe --page=0"),
        (["tictactoe", "--page", "0"], "cpu", "games,page", "--preset=tictactoe --page 0"),
        (["league"], "cpu", "games", "--preset=league-tictactoe"),
        (["league", "--seed=1"], "cpu", "games", "--preset=league-tictactoe --seed=1"),
        (["league", "kuhn", "--seed=1"], "cpu", "games", "--preset=league-kuhn --seed=1"),
        (["league", "connect_four", "muzero"], "cpu", "games", "--preset=league-connect-four --agent=muzero"),
        (["connect_four", "alphazero"], "cpu", "pgx", "--preset=connect_four --agent=alphazero"),
        (["football", "vtrace"], "cpu", "envpool", "--preset=football --agent=vtrace"),
        (["football:5_vs_5"], "cuda", "cuda,envpool", "--env=football:5_vs_5"),
        (["mujoco", "sac"], "cpu", "mujoco", "--preset=mujoco --agent=sac"),
        (["gym:Hopper-v5"], "cpu", "mujoco", "--env=gym:Hopper-v5"),
        (["catch", "mine:AGENT"], "cpu", "", "--preset=catch --agent=mine:AGENT"),
        (["gym:minigrid:MiniGrid-Empty-8x8-v0"], "cpu", "minigrid", "--env=gym:minigrid:MiniGrid-Empty-8x8-v0"),
        (["popgym:CountRecallEasy-v0"], "cpu", "popgym", "--env=popgym:CountRecallEasy-v0"),
        (["spiel:othello"], "cuda", "cuda,games", "--env=spiel:othello"),
    ],
)
def test_run_local_picks_extras_and_command(
    args: list[str], device: str, extras: str, command: str, copy: pathlib.Path
) -> None:
    done = _run_local(*args, root=copy, **{**CPU, "SEEDZERO_DEVICE": device})
    assert done.stdout == f"train {command}\n", done.stderr
    assert _extras(copy) == _named(extras)


@pytest.mark.parametrize(("device", "platforms"), [("cpu", "cpu"), ("cuda", "any")])
def test_a_cpu_is_used_beside_an_accelerator_where_asked_for(device: str, platforms: str, copy: pathlib.Path) -> None:
    _script(copy / ".venv" / "bin" / "seedzero", 'echo "${JAX_PLATFORMS:-any}"')
    environment = {**CPU, "SEEDZERO_DEVICE": device, "JAX_PLATFORMS": ""}
    assert _run_local("catch", root=copy, **environment).stdout == f"{platforms}\n"


@pytest.mark.parametrize(
    ("nvidia", "files", "extras"),
    [
        ("exit 0", {}, "cuda"),
        ("exit 9", {}, ""),  # a driver without a GPU
        ("exit 9", {"dev/accel0": ""}, "tpu"),
        ("exit 9", {"dev/vfio/3": "", "sys/kernel/iommu_groups/3/devices/0000:00:05.0/vendor": "0x1ae0\n"}, "tpu"),
        ("exit 9", {"dev/vfio/3": "", "sys/kernel/iommu_groups/3/devices/0000:00:05.0/vendor": "0x10de\n"}, ""),
        # Google's network card, which no program has taken.
        ("exit 9", {"dev/vfio/vfio": "", "sys/kernel/iommu_groups/4/devices/0000:00:04.0/vendor": "0x1ae0\n"}, ""),
    ],
    ids=["gpu", "none", "accel", "vfio", "another_vendor", "network_card"],
)
def test_a_gpu_is_found_by_its_driver_and_a_tpu_by_its_devices(
    nvidia: str, files: dict[str, str], extras: str, copy: pathlib.Path
) -> None:
    for name, text in files.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text)
    script = (copy / "run_local.sh").read_text()
    (copy / "run_local.sh").write_text(re.sub(r"/(?=dev/(?:accel|vfio)|sys/kernel)", f"{copy}/", script))
    tools = copy / "tools"
    tools.mkdir()
    _script(tools / "nvidia-smi", nvidia)
    _run_local("catch", root=copy, SEEDZERO_DEVICE="", PATH=f"{tools}{os.pathsep}{_path_without_uv()}")
    assert f"--editable {copy}\n" in _log(copy) and _extras(copy) == _named(extras)


def test_a_venv_whose_python_is_gone_is_made_again_and_keeps_its_lock(tmp_path: pathlib.Path) -> None:
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "python3").symlink_to(tmp_path / "uninstalled" / "python3")
    (tools / "python").symlink_to("python3")
    lock = tmp_path / ".venv" / "lock"
    lock.touch()
    held = lock.stat().st_ino
    python = tmp_path / "python"  # makes environments without pip, in no time
    _script(python, f'[ "$2" = venv ] && set -- "$@" --without-pip\nexec {shlex.quote(sys.executable)} "$@"')
    done = subprocess.run(
        ["bash", "-c", f"root={shlex.quote(str(tmp_path))}; . {ROOT}/scripts/venv.sh; make_venv"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": _path_without_uv(), "PYTHON": str(python)},
    )
    assert done.returncode == 0, done.stderr
    assert subprocess.run([tools / "python", "-c", ""], check=False).returncode == 0
    assert lock.stat().st_ino == held


@pytest.mark.parametrize(
    "name", ["tests/README.md", "docs/deploy.md", "scripts/test", "scripts/docs", "CONTRIBUTING.md"]
)
def test_advice_to_install_an_extra_leaves_the_clone_installed_as_it_is(name: str) -> None:
    advice = re.findall(r"\.venv/bin/pip install (.*'\.\[[\w,]+\]')", (ROOT / name).read_text())
    assert advice and all(words.startswith("-e ") for words in advice)


@pytest.mark.parametrize(
    ("flags", "extras"),
    [((), "dev"), (("--clouds",), "dev,clouds"), (("--slow", "--docker", "--clouds"), "dev,clouds")],
)
def test_run_tests_installs_the_clouds_on_request_alone(
    flags: tuple[str, ...], extras: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "run_tests.sh", tmp_path)
    (tmp_path / "scripts" / "venv.sh").write_text('ensure_venv() { echo "installs $1"; return 1; }\n')
    done = subprocess.run(
        ["bash", str(tmp_path / "run_tests.sh"), *flags], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, f"installs {extras}\n")


def test_run_tests_reports_all_and_signals_no_process_that_has_ended(tmp_path: pathlib.Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "run_tests.sh", tmp_path)
    (tmp_path / "scripts" / "venv.sh").write_text('ensure_venv() { :; }\nkill() { echo "killed $1"; }\n')
    _script(tmp_path / "scripts" / "check", "echo a mistake; exit 1")
    _script(tmp_path / "scripts" / "test", 'echo "passed $*"')
    done = subprocess.run(
        ["bash", str(tmp_path / "run_tests.sh"), "--all", "-x"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "a mistake" in done.stdout and done.stdout.endswith("passed --all -x\n")
    assert re.search(r"tests +ok .*\nchecks +FAILED ", done.stdout)


_FOREGROUND = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)
"""A shell cannot trap what its parent ignores, as whoever runs the tests in the background may do with Ctrl-C."""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_run_tests_leaves_nothing_behind_when_it_is_ended(
    sent: signal.Signals, code: int, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "run_tests.sh", tmp_path)
    (tmp_path / "scripts" / "venv.sh").write_text("ensure_venv() { :; }\n")
    for name in ("check", "test"):
        os.mkfifo(tmp_path / name)  # open as long as one of its processes lives
    _script(tmp_path / "scripts" / "check", "echo > go; sleep 600 > check")
    tests = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # pause() would wait on where it came just before
open("go").read()
with open("test", "w"):
    print("begun", flush=True)
    signal.sigwait({signal.SIGINT})
    print("reported", flush=True)  # and the code 2, as pytest does
    sys.exit(2)
"""
    _script(tmp_path / "scripts" / "test", f"exec {sys.executable} -c '{tests}'")
    os.mkfifo(tmp_path / "go")
    with subprocess.Popen(
        [sys.executable, "-c", _FOREGROUND, "bash", str(tmp_path / "run_tests.sh")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        with (tmp_path / "check").open() as check, (tmp_path / "test").open() as test:
            while process.stdout.readline() != "begun\n":
                assert process.poll() is None
            if sent == signal.SIGINT:
                os.killpg(process.pid, sent)
            else:
                process.send_signal(sent)
            assert (check.read(), test.read()) == ("", "")  # their ends
        assert process.wait() == code
        rest = process.stdout.read()
    assert "checks" not in rest and ("reported" in rest) == (sent == signal.SIGINT)


def test_a_python_that_does_not_run_or_is_too_old_is_named(copy: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shutil.rmtree(copy / ".venv")
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "dirname", "basename", "mkdir", "cat", "tr", "env"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    _script(tools / "python3", "exit 127")  # as a shim of pyenv does for a version that is not chosen
    done = _run_local("catch", root=copy, SEEDZERO_DEVICE="cpu", PATH=str(tools))
    assert done.returncode == 1
    assert "3.11, 3.12" in done.stderr and "python3 (does not run)" in done.stderr and "PYTHON=" in done.stderr
