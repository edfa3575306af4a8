"""Objects of a repository: listed, streamed down, streamed up, and deleted in bulk."""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from hashlib import md5
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, cast
from urllib.parse import quote

from pydantic import SecretStr

from perago.lake.errors import LakeError, LakeForbidden, answered
from perago.lake.retries import repeated
from perago.lake.transport import CHUNK, Connections, Read, Request, Response, api_root, split

# S3 takes no more in one PUT; lakeFS itself sends larger ones in parts.
_LARGEST_PUT = 5 * 1024**3
# Azure asks for it, and others pass over it.
_BLOCK_BLOB = {"x-ms-blob-type": "BlockBlob"}
PAGE = 1000  # lakeFS's limit for a listing and for a bulk delete alike


class Sink(Protocol):
    """Takes an object's content, chunk by chunk."""

    def restart(self) -> None: ...
    def write(self, chunk: bytes) -> object: ...


class RemoteObject(NamedTuple):
    """An object as listed; `url` is where to fetch it when the storage lets us go there directly."""

    path: str
    size: int
    url: str | None = None


class Change(NamedTuple):
    """An object that differs between two states."""

    path: str
    kind: Literal["added", "changed", "removed"]


class LakeObjects:
    """Bulk data of one lakeFS server. Every call is idempotent, so transient errors are tried again."""

    def __init__(self, endpoint_url: str, access_key_id: str, secret_access_key: SecretStr) -> None:
        #: What another process needs to make the same; it holds the secret.
        self.address = (endpoint_url, access_key_id, secret_access_key)
        self._server, self._root = split(api_root(endpoint_url))
        key = f"{access_key_id}:{secret_access_key.get_secret_value()}"
        self._auth = {"Authorization": f"Basic {base64.b64encode(key.encode()).decode()}"}
        self._connections = Connections()

    @cached_property
    def presigned(self) -> bool:
        """Whether the storage hands out signed addresses of its own; the local one does not."""
        config = self._json("GET", f"{self._root}/config", "reading the server's configuration")
        return bool(config.get("storage_config", {}).get("pre_sign_support"))

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        """All objects below a prefix in the order of their paths' bytes; other kinds of entries are passed over."""
        presign = "true" if self.presigned else "false"
        listing = f"{self._refs(repository, ref)}/objects/ls?prefix={_q(prefix)}&user_metadata=false&presign={presign}"
        for entry in self._pages(listing, f"listing {prefix or '/'} at {ref}"):
            if entry["path_type"] == "object":
                url = entry["physical_address"] if self.presigned else None
                yield RemoteObject(entry["path"], int(entry.get("size_bytes") or 0), url)

    def uncommitted(self, repository: str, branch: str) -> Iterator[Change]:
        """What a branch has beyond its head, in the order of paths."""
        yield from self._changes(f"{self._branches(repository, branch)}/diff?prefix=", f"comparing branch {branch}")

    def difference(self, repository: str, left: str, right: str, prefix: str) -> Iterator[Change]:
        """What the right one of two commits has otherwise than the left one."""
        target = f"{self._refs(repository, left)}/diff/{_q(right)}?type=two_dot&prefix={_q(prefix)}"
        yield from self._changes(target, f"comparing {left} with {right}")

    def _changes(self, target: str, doing: str) -> Iterator[Change]:
        for entry in self._pages(target, doing):
            if entry["path_type"] == "object":
                yield Change(entry["path"], entry["type"])

    def _pages(self, target: str, doing: str) -> Iterator[dict[str, Any]]:
        after = ""
        while True:
            page = self._json("GET", f"{target}&after={_q(after)}&amount={PAGE}", doing)
            yield from page["results"]
            if not page["pagination"]["has_more"]:
                return
            after = page["pagination"]["next_offset"]

    def fetch(self, repository: str, ref: str, wanted: RemoteObject, sink: Sink) -> int:
        """Stream an object into a sink and give the number of bytes; a cut connection begins it anew."""
        if wanted.url:
            try:
                return self._fetch(Request("GET", *split(wanted.url), {}, _reading(wanted)), sink)
            except LakeForbidden:
                pass  # the signature has run out meanwhile: lakeFS itself hands the object out
        target = f"{self._refs(repository, ref)}/objects?path={_path(wanted.path)}"
        return self._fetch(Request("GET", self._server, target, self._auth, _reading(wanted)), sink)

    def _fetch(self, request: Request, sink: Sink) -> int:
        def once() -> int:
            sink.restart()
            return self._send(request, lambda response: _copy(response, sink))

        return repeated(once)

    def store(self, repository: str, branch: str, path: str, content: Callable[[], BinaryIO], size: int) -> None:
        """Upload an object; what lakeFS says it stored must be what was sent."""
        repeated(lambda: self._store_once(repository, branch, path, content, size))

    def _store_once(self, repository: str, branch: str, path: str, content: Callable[[], BinaryIO], size: int) -> None:
        sent = md5(usedforsecurity=False)
        with content() as file:
            if self.presigned and size <= _LARGEST_PUT:
                self._store_presigned(repository, branch, path, file, size)
                return
            target = f"{self._branches(repository, branch)}/objects?path={_path(path)}"
            headers = {**self._auth, "Content-Type": "application/octet-stream"}
            doing = f"writing object {path!r}"
            body = partial(_chunks, file, size, sent.update)
            stored = json.loads(self._body(Request("POST", self._server, target, headers, doing, body, size)))
        if stored["size_bytes"] != size or stored["checksum"] != sent.hexdigest():
            raise LakeError(f"lakeFS stored something else than was sent as object {path!r}")

    def _store_presigned(self, repository: str, branch: str, path: str, file: BinaryIO, size: int) -> None:
        """Straight to the storage at an address lakeFS signs, then made known to lakeFS."""
        place = f"{self._branches(repository, branch)}/staging/backing?path={_path(path)}"
        doing = f"writing object {path!r}"
        staging = self._json("GET", f"{place}&presign=true", doing)
        sent = md5(usedforsecurity=False)
        body = partial(_chunks, file, size, sent.update)
        upload = Request("PUT", *split(staging["presigned_url"]), _BLOCK_BLOB, doing, body, size)

        def stored(response: Response) -> str | None:
            response.read()
            return response.md5

        if self._send(upload, stored) not in (None, sent.hexdigest()):
            raise LakeError(f"the storage has something else than was sent as object {path!r}")
        link = {"staging": staging, "checksum": sent.hexdigest(), "size_bytes": size}
        self._json("PUT", place, doing, {**link, "content_type": "application/octet-stream"})

    def delete(self, repository: str, branch: str, paths: Sequence[str]) -> None:
        """Delete up to `PAGE` objects; those that are gone already are as wanted."""
        doing = f"deleting {len(paths)} objects of branch {branch}"
        url = f"{self._branches(repository, branch)}/objects/delete"
        answer = self._json("POST", url, doing, {"paths": list(paths)})
        failed = cast("list[dict[str, Any]]", answer.get("errors") or [])
        if failed:
            raise LakeError(f"lakeFS did not delete object {failed[0].get('path')!r}: {failed[0].get('message')}")

    def _json(self, method: str, target: str, doing: str, payload: Mapping[str, Any] | None = None) -> dict[str, Any]:
        content = json.dumps(payload).encode() if payload is not None else b""
        headers = {**self._auth, "Content-Type": "application/json"} if payload is not None else self._auth
        body = (lambda: [content]) if payload is not None else None
        request = Request(method, self._server, target, headers, doing, body, len(content))
        return repeated(lambda: json.loads(self._body(request) or b"{}"))

    def _body(self, request: Request) -> bytes:
        return self._send(request, Response.read)

    def _send(self, request: Request, read: Callable[[Response], Read]) -> Read:
        def checked(response: Response) -> Read:
            if not 200 <= response.status < 300:  # a redirect has carried nothing out
                raise answered(request.doing, response.status, _message(response))
            return read(response)

        return self._connections.send(request, checked)

    def _refs(self, repository: str, ref: str) -> str:
        return f"{self._root}/repositories/{_known(repository)}/refs/{_known(ref)}"

    def _branches(self, repository: str, branch: str) -> str:
        return f"{self._root}/repositories/{_known(repository)}/branches/{_known(branch)}"


def _message(response: Response) -> str:
    told = response.read()
    try:
        return str(json.loads(told)["message"])
    except (ValueError, KeyError, TypeError):
        return response.reason


def _reading(wanted: RemoteObject) -> str:
    return f"reading object {wanted.path!r}"


def _q(text: str) -> str:
    return quote(text, safe="")


_known = lru_cache(maxsize=64)(_q)  # for what comes again with every object


def _path(path: str) -> str:
    """An object's path in a query, where a slash may stay: most paths then need nothing."""
    return quote(path, safe="/")


def _copy(response: Response, sink: Sink) -> int:
    copied = 0
    for chunk in response.chunks():
        sink.write(chunk)
        copied += len(chunk)
    return copied


def _chunks(file: BinaryIO, size: int, seen: Callable[[bytes], object]) -> Iterable[bytes]:
    """Exactly `size` bytes, or an error: a file that shrinks while it is sent must not become a shorter object."""
    left = size
    while left:
        try:
            chunk = file.read(min(CHUNK, left))
        except OSError as error:  # else it would be taken for a broken connection, and tried again
            raise LakeError(f"a file could not be read while it was sent: {error}") from error
        if not chunk:
            raise LakeError(f"a file ended {left} bytes early while it was sent")
        seen(chunk)
        left -= len(chunk)
        yield chunk
