"""Every error that seedzero raises on purpose.

    Error
    ├── UsageError            a command line or configuration that cannot be run (exit code 2)
    │   ├── ConfigError       a key or value of the configuration
    │   ├── ResumeError       a run directory that does not fit the configuration
    │   │   └── Occupied      another learner uses it: the same command may do later
    │   └── CapacityError     does not fit into the memory or the disk that is there
    ├── ProtocolError         what came over the wire breaks the protocol; ends that stream, nothing else
    │   ├── VersionMismatch   other protocol version
    │   ├── InvalidMessage    wrong shape, dtype, value range, or undecodable
    │   ├── SpecMismatch      a worker's environment differs from the learner's
    │   ├── SequenceError     a gap or an older number in a group's messages
    │   ├── UnknownRun        the run id has expired or was never given out: reset and take a new one
    │   └── SlotsExhausted    more environments than the learner has room for
    ├── AccessDenied          the other side does not take the token, or no TLS connection can be agreed on
    ├── EnvironmentFailure    an environment cannot be made, raised, or is not supported
    ├── BucketError           a bucket cannot be reached, or refuses what is asked of it
    │   └── LeaseLost         another learner has taken the run directory in the bucket
    ├── CheckpointError       a checkpoint is missing, damaged or could not be written
    └── TrainingFailure       training cannot go on (non-finite loss, dead workers, a failed device call)

A message gives the name of the thing, what came, what was expected, and what to do next.
"""


class Error(Exception):
    """Base of all errors that seedzero raises on purpose."""


class UsageError(Error):
    """A command line or configuration that cannot be run."""


class ConfigError(UsageError):
    """A key or value of the configuration is unknown, of a wrong type or impossible."""


class ResumeError(UsageError):
    """A run directory cannot be used: other configuration, occupied, read-only."""


class Occupied(ResumeError):
    """A run directory cannot be used as long as another learner uses it."""


class CapacityError(UsageError):
    """What the configuration asks for does not fit into the memory or disk that is there."""


class ProtocolError(Error):
    """What came over the wire breaks the protocol."""


class VersionMismatch(ProtocolError):
    """The peer speaks another protocol version."""


class InvalidMessage(ProtocolError):
    """A message has a wrong shape, dtype or value, or cannot be decoded."""


class SpecMismatch(ProtocolError):
    """A worker's environment differs from the one that the networks were built for."""


class SequenceError(ProtocolError):
    """A gap or an older number in the messages of a group of environments."""


class UnknownRun(ProtocolError):
    """The run id has expired or was never given out."""


class SlotsExhausted(ProtocolError):
    """More environments than the learner has room for."""


class AccessDenied(Error):
    """The other side does not take the token, or the two do not agree on TLS; trying again cannot heal it."""


class EnvironmentFailure(Error):
    """An environment cannot be made, raised while stepping, or is not supported."""


class BucketError(Error):
    """A bucket cannot be reached, or refuses what is asked of it."""


class LeaseLost(BucketError):
    """Another learner has taken the run directory in the bucket."""


class CheckpointError(Error):
    """A checkpoint is missing, damaged, or could not be written."""


class TrainingFailure(Error):
    """Training cannot go on."""
