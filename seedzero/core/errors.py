"""Every error that seedzero raises on purpose.

    Error
    ├── UsageError            a wrong command line or configuration (exit code 2)
    │   ├── ConfigError       a key or value of the configuration
    │   ├── ResumeError       a run directory that does not fit the configuration
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
    └── TrainingFailure       training cannot go on (non-finite loss, dead workers, a failed device call)

A message gives the name of the thing, what came, what was expected, and what to do next.
"""


class Error(Exception):
    """Base of all errors that seedzero raises on purpose."""


class UsageError(Error):
    """A command line or configuration is wrong."""


class ConfigError(UsageError):
    """A key or value of the configuration is unknown, of a wrong type or impossible."""


class ResumeError(UsageError):
    """A run directory cannot be used: other configuration, occupied, read-only."""


class Occupied(ResumeError):
    """Another learner uses the run directory."""


class CapacityError(UsageError):
    """The configuration does not fit into the memory or disk."""


class ProtocolError(Error):
    """A message breaks the protocol."""


class VersionMismatch(ProtocolError):
    """The peer speaks another protocol version."""


class InvalidMessage(ProtocolError):
    """A message has a wrong shape, dtype or value, or cannot be decoded."""


class SpecMismatch(ProtocolError):
    """A worker's environment differs from the one that the networks were built for."""


class SequenceError(ProtocolError):
    """A gap or an older number in the messages of a group of environments."""


class SlotsExhausted(ProtocolError):
    """More environments than the learner has room for."""


class AccessDenied(Error):
    """The other side refuses the token, or the two do not agree on TLS: a permanent error."""


class EnvironmentFailure(Error):
    """An environment cannot be made, raised while stepping, or is not supported."""


class BucketError(Error):
    """A bucket cannot be reached, or refuses a request."""


class LeaseLost(BucketError):
    """Another learner has taken the run directory in the bucket."""


class CheckpointError(Error):
    """A checkpoint is missing, damaged, or could not be written."""


class TrainingFailure(Error):
    """Training cannot go on."""
