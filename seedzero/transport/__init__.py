"""The wire between workers and learner."""

import os

# gRPC reads this when it is imported. Its log lines in C++ would stand beside our own messages about the same trouble.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
