"""Turn the answers of an object store into Tidegate's errors.

An error names the store's code and the HTTP status only: the texts of a store can hold parts of credentials.
"""

from __future__ import annotations

import re

from tidegate.contracts.errors import TidegateError, Unavailable, UserError

_CODE = re.compile(r"<Code>(\w{1,80})</Code>|\(code: (\w{1,80})\)")
_STATUS = re.compile(r"status code: (\d{3})")
_BELOW = re.compile(r"HTTP error: ([a-z ]{1,80})")
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"}
_EXPIRED = {"ExpiredToken", "TokenRefreshRequired", "RequestExpired"}
_CLOCK = {"RequestTimeTooSkewed"}
_DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
_DENIED_STATUS = re.compile(r"status code: 40[13]\b")


def code_of(error: Exception) -> str:
    """Return the store's own code of the error, such as `SlowDown`, else the HTTP status, else what failed below it."""
    text = str(error)
    found = _CODE.search(text) or _STATUS.search(text) or _BELOW.search(text)
    return str(found[found.lastindex or 0]) if found else type(error).__name__


def is_range_beyond_end(error: Exception) -> bool:
    """Return True if the object has no bytes in the range that was asked for; some stores answer with the object."""
    return any(text in str(error) for text in ("status code: 416", "StartTooLarge"))


def is_bucket_missing(error: Exception) -> bool:
    """Return True if the bucket does not exist. The answer to a HEAD does not tell, so it counts as an object's."""
    return code_of(error) in _NO_BUCKET


def is_refusal(error: Exception) -> bool:
    """Return True if the store has refused the credentials: nothing was read or written."""
    return code_of(error) in _DENIED | _EXPIRED or _DENIED_STATUS.search(str(error)) is not None


def tidegate_error(error: Exception, place: object, key: str) -> TidegateError:
    """Return the error to raise in place of the store's.

    UserError if the store refuses this user or has no such bucket. Unavailable otherwise, also if credentials have
    expired: once they are renewed, the work goes on.
    """
    code = code_of(error)
    where = f"{place}/{key}: {code}" if key else f"{place}: {code}"
    if code in _NO_BUCKET:
        return UserError("the lake's bucket does not exist", value=where, remedy="create it, or correct `lake`")
    if code in _EXPIRED:
        return Unavailable("the credentials of the lake have expired", value=where, remedy="renew them on this machine")
    if code in _CLOCK:
        return Unavailable("the lake refuses this machine's clock", value=where, remedy="set the machine's clock")
    if is_refusal(error):
        return UserError(
            "the lake refuses the credentials of this machine",
            value=where,
            remedy="check the environment variables, role or profile of this machine, and the bucket's policy",
        )
    return Unavailable("the lake does not answer", value=where, remedy="check the network and the object store")
