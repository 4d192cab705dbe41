"""What the exit codes of the command line mean: those of sysexits.h where there is one."""

from enum import IntEnum

from hourwheel import errors


class ExitCode(IntEnum):
    """Exit codes, in `hourwheel --help` and in the user's scripts."""

    OK = 0
    """Done."""
    PARTLY = 1
    """Done, but not for all that was asked about: an id could not be cancelled, or is unknown."""
    USAGE = 2
    """The command line is wrong."""
    REFUSED = 65
    """The node refused the request, and will again; or what it sent is damaged."""
    NOT_FOUND = 66
    """There is no such topic or group."""
    UNAVAILABLE = 69
    """No node could be reached, or it does not serve now; or a part of the program is missing."""
    INTERNAL = 70
    """A fault of the node or of this program."""
    TRY_LATER = 75
    """The node is overloaded or full, or did not answer: the outcome may be unknown."""
    INTERRUPTED = 130
    """Ctrl-C."""


_BY_KIND = (
    (errors.NotFound, ExitCode.NOT_FOUND),
    (errors.Unavailable, ExitCode.UNAVAILABLE),
    (errors.QuotaReached, ExitCode.REFUSED),
    (errors.ResourceExhausted, ExitCode.TRY_LATER),
    (errors.Timeout, ExitCode.TRY_LATER),
    (errors.Internal, ExitCode.INTERNAL),
    (errors.InvalidArgument, ExitCode.REFUSED),
    (errors.AlreadyExists, ExitCode.REFUSED),
    (errors.FailedPrecondition, ExitCode.REFUSED),
    (errors.DataLoss, ExitCode.REFUSED),
    (errors.PermissionDenied, ExitCode.REFUSED),
    (errors.Unauthenticated, ExitCode.REFUSED),
)


def exit_code_of(error: errors.HourwheelError) -> ExitCode:
    """The exit code for an error."""
    return next((code for kind, code in _BY_KIND if isinstance(error, kind)), ExitCode.INTERNAL)


def describe_exit_codes() -> str:
    """All codes in one line each, for the help."""
    meanings = {
        ExitCode.OK: "done",
        ExitCode.PARTLY: "done, but not for every id",
        ExitCode.USAGE: "wrong command line",
        ExitCode.REFUSED: "refused, or damaged data",
        ExitCode.NOT_FOUND: "no such topic or group",
        ExitCode.UNAVAILABLE: "no node in reach",
        ExitCode.INTERNAL: "a fault of the node or the program",
        ExitCode.TRY_LATER: "overloaded, full or no answer",
        ExitCode.INTERRUPTED: "interrupted",
    }
    return "Exit codes: " + ", ".join(f"{code:d} {text}" for code, text in meanings.items()) + "."
