"""The supervisor's end of an executor's pipe, on the event loop: an executor that stops anywhere holds up nobody."""

import asyncio
import pickle
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import structlog

_log = structlog.get_logger("perago.supervisor")

_READ_BYTES = 1 << 18
_LENGTH = struct.Struct("!i")  # the executor's end is a multiprocessing Connection, which frames its pickles so


class Pipe:
    """Sends and hears whole messages. `closed` is called once nothing more can be heard."""

    def __init__(self, end: socket.socket, heard: Callable[[Any], None], closed: Callable[[], None]) -> None:
        self._socket = end
        self._heard = heard
        self._closed = closed
        self._unread, self._unsent = bytearray(), bytearray()
        self._is_silent = False
        self._loop = asyncio.get_running_loop()
        end.setblocking(False)
        self._loop.add_reader(end, self._read)

    def send(self, message: object) -> None:
        """Send now what the socket takes, and the rest when the executor reads on."""
        content = pickle.dumps(message)
        is_waiting = bool(self._unsent)
        self._unsent += _LENGTH.pack(len(content)) + content
        if not is_waiting:
            self._write()

    def hear_the_rest(self) -> None:
        """Take what is there already, and wait for nothing: whoever said it is dead."""
        while not self._is_silent and self._read():
            pass

    def close(self) -> None:
        self._stop_reading()
        self._stop_writing()
        self._socket.close()

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:  # the executor is gone, and its slot hears of that by itself
            self._stop_writing()
            return
        del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(self._socket, self._write)
        else:
            self._stop_writing()

    def _read(self) -> bool:
        """Hear what is there; False when that was nothing."""
        try:
            some = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            some = b""
        self._unread += some
        try:
            for message in self._whole_messages():
                self._heard(message)
        except Exception as error:  # nothing after it could be trusted
            _log.error("executor is not understood", exc_info=error)
            some = b""
        if not some:
            self._is_silent = True
            self._stop_reading()
            self._closed()
        return bool(some)

    def _whole_messages(self) -> Iterator[Any]:
        while len(self._unread) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._unread)
            if length < 0:
                raise ValueError("a message of more than 2 GiB")
            end = _LENGTH.size + length
            if len(self._unread) < end:
                return
            message = pickle.loads(self._unread[_LENGTH.size : end])  # noqa: S301 - from our own process
            del self._unread[:end]
            yield message

    def _stop_reading(self) -> None:
        self._loop.remove_reader(self._socket)

    def _stop_writing(self) -> None:
        self._unsent.clear()
        self._loop.remove_writer(self._socket)
