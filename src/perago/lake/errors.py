"""What lakeFS's answers mean, in one table."""

from typing import Any

from perago.authoring.errors import PeragoError


class LakeError(PeragoError):
    """lakeFS could not be asked, or said no."""


class LakeUnreachable(LakeError):  # noqa: N818 - names the state, not the class
    """No answer came from lakeFS."""


class LakeUnauthorised(LakeError):  # noqa: N818
    """lakeFS does not accept the credentials, or they may not do this."""


class LakeNotFound(LakeError):  # noqa: N818
    """The repository, branch, commit or object does not exist."""


class LakeConflict(LakeError):  # noqa: N818
    """What was to be made exists already, or changed meanwhile."""


_BY_STATUS: dict[int, type[LakeError]] = {
    401: LakeUnauthorised,
    403: LakeUnauthorised,
    404: LakeNotFound,
    409: LakeConflict,
    412: LakeConflict,
}


def lake_error(doing: str, status: int | None, told: Any) -> LakeError:
    """The error of an answer; without a status there was none."""
    if status is None:
        return LakeUnreachable(
            f"lakeFS gave no answer while {doing} ({told}): check LAKECTL_SERVER_ENDPOINT_URL,"
            " or start a local stack with `perago dev up`"
        )
    hint = "; check LAKECTL_CREDENTIALS_*" if status == 401 else ""
    return _BY_STATUS.get(status, LakeError)(f"lakeFS answered {status} while {doing}: {told}{hint}")
