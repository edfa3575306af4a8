"""What lakeFS's answers mean, in one table."""

from perago.authoring.errors import PeragoError


class LakeError(PeragoError):
    """lakeFS could not be asked, or said no."""

    #: Whether the same call may be sent again.
    retryable = False


class LakeUnreachable(LakeError):  # noqa: N818 - these name a state of the world
    """No answer came; the call was not carried out, or it does no harm to repeat it."""

    retryable = True


class LakeBusy(LakeError):  # noqa: N818
    """lakeFS asks to come back later."""

    retryable = True


class LakeOutcomeUnknown(LakeError):  # noqa: N818
    """A call that changes something was sent and not answered: look before doing anything else."""


class LakeUnauthorised(LakeError):  # noqa: N818
    """lakeFS does not accept the credentials."""


class LakeForbidden(LakeError):  # noqa: N818
    """The credentials may not do this, or the branch is protected against it."""


class LakeNotFound(LakeError):  # noqa: N818
    """The repository, branch, commit or object does not exist."""


class LakeConflict(LakeError):  # noqa: N818
    """What was to be made exists already, or changed meanwhile."""


class LakeRefusedByHook(LakeError):  # noqa: N818
    """An action of the repository refused the commit or merge."""


class LakeBadRequest(LakeError):  # noqa: N818
    """lakeFS does not accept the call as it is."""


_BY_STATUS: dict[int, type[LakeError]] = {
    400: LakeBadRequest,
    401: LakeUnauthorised,
    403: LakeForbidden,
    404: LakeNotFound,
    409: LakeConflict,
    410: LakeNotFound,
    412: LakeRefusedByHook,
    423: LakeBusy,
    429: LakeBusy,
}


def answered(doing: str, status: int, told: str, *, changes: bool = False) -> LakeError:
    """The error a status stands for; a server's own failure says nothing about what a change became."""
    if changes and status >= 500:
        return LakeOutcomeUnknown(f"lakeFS answered {status} while {doing}: {told}: its outcome is unknown")
    kind = LakeBusy if status >= 500 else _BY_STATUS.get(status, LakeError)
    hint = "; check LAKECTL_CREDENTIALS_ACCESS_KEY_ID and its secret" if status == 401 else ""
    return kind(f"lakeFS answered {status} while {doing}: {told}{hint}")


def unanswered(doing: str, cause: BaseException, *, changes: bool = False) -> LakeError:
    """The error of a call that got no answer; one that changes something has an unknown outcome."""
    if changes:
        return LakeOutcomeUnknown(f"lakeFS gave no answer while {doing} ({_told(cause)}): its outcome is unknown")
    return LakeUnreachable(
        f"lakeFS gave no answer while {doing} ({_told(cause)}): check LAKECTL_SERVER_ENDPOINT_URL,"
        " or start a local stack with `perago dev up`"
    )


def _told(cause: BaseException) -> str:
    """What went wrong, without the server's address: a reason is shown to people who need not know it."""
    told = cause.strerror or (cause.args[0] if cause.args else "") if isinstance(cause, OSError) else ""
    return f"{type(cause).__name__}: {told}" if told else type(cause).__name__
