"""Every deliberate error of seedzero, in a single tree, and the exit codes.

    Error
    ├── UsageError            a wrong command line or configuration (exit code 2)
    │   ├── ConfigError       a key or value of the configuration
    │   ├── ResumeError       a run directory that cannot be used: of another configuration, occupied, read-only
    │   │   └── Occupied      another learner uses it: the same command may do later
    │   └── CapacityError     does not fit into the memory or the disk
    ├── ProtocolError         a message breaks the protocol; ends that stream, nothing else
    │   ├── VersionMismatch   other protocol version
    │   ├── InvalidMessage    wrong shape, dtype, value range, or undecodable
    │   ├── SpecMismatch      a worker's environment differs from the learner's
    │   ├── SequenceError     a gap or an older number in a group's messages
    │   └── SlotsExhausted    more environments than the learner has room for
    ├── AccessDenied          the other side refuses the token, or the two do not agree on TLS
    ├── EnvironmentFailure    an environment cannot be made, raised, or is not supported
    ├── BucketError           a bucket cannot be reached, or refuses a request
    │   └── LeaseLost         another learner has taken the run directory in the bucket
    ├── CheckpointError       a checkpoint is missing, damaged or could not be written
    ├── RecordError           a recorded episode is damaged, or of another version
    ├── ServingFailure        a policy server cannot continue (a failed device call)
    └── TrainingFailure       training cannot continue (non-finite loss, dead workers, a failed device call)
        ├── BuilderError      a league's builder failed: a function of the user's
        └── CallbackError     a function that `seedzero.train` was given raised an error

A message gives the name of the thing, what came, what was expected, and what to do next.
"""

import os
import sys
import threading
from typing import NoReturn

# Exit codes of every process of seedzero, and the function that ends a process.
DONE = 0
FAILED = 1
BAD_USAGE = 2
"""A command line or configuration that cannot be run."""
REFUSED = 65
"""A worker has impossible values, mostly from its environments, which a restart would mostly show again."""
FAILED_LATER = 66
"""A worker's environments failed after some of its episodes were completed, so a restart makes progress."""
TRY_LATER = 75
"""Tells a supervisor that another learner still uses the run directory."""
INTERRUPTED = 130
"""The process left at once after Ctrl-C."""


def leave(code: int) -> NoReturn:
    """Ends the process at once.

    Python would first wait for every thread. An environment's thread may never end, and the compiling thread cannot be
    interrupted, although a large program takes longer than the notice before a machine is taken away.
    """
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        for stream in filter(None, (sys.stdout, sys.stderr)):  # a closed stream is None
            stream.flush()
        os._exit(code)
    sys.exit(code)


class Error(Exception): ...


class UsageError(Error): ...


class ConfigError(UsageError): ...


class ResumeError(UsageError): ...


class Occupied(ResumeError): ...


class CapacityError(UsageError): ...


class ProtocolError(Error): ...


class VersionMismatch(ProtocolError): ...


class InvalidMessage(ProtocolError): ...


class SpecMismatch(ProtocolError): ...


class SequenceError(ProtocolError): ...


class SlotsExhausted(ProtocolError): ...


class AccessDenied(Error): ...


class EnvironmentFailure(Error): ...


class BucketError(Error): ...


class LeaseLost(BucketError): ...


class CheckpointError(Error): ...


class RecordError(Error): ...


class ServingFailure(Error): ...


class TrainingFailure(Error): ...


class BuilderError(TrainingFailure): ...


class CallbackError(TrainingFailure): ...
