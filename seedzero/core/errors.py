"""Every deliberate error of seedzero, in a single tree.

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
