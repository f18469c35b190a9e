"""The connection between workers and learner."""

import os

# gRPC reads both when it is imported.
# Its messages from C++ would appear next to our own about the same trouble.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Environments may fork, as EnvPool's VizDoom does in threads of its own: gRPC's handlers of forks then abort the
# worker. No process calls gRPC after a fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
