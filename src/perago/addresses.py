"""Addresses of servers: what can be one, and how one is shown. An address may carry a password or a token."""

import re
from urllib.parse import urlsplit

_SPARK_PARAMETERS = re.compile(r"(?:/(?:;[^;=/?#\s]+=[^;=/?#\s]*)*;?)?")


def http_address(text: str) -> str:
    """The address of an HTTP server as it is; what cannot be one is a `ValueError` that does not repeat it."""
    if not _names_a_server(text, ("http", "https")) or re.search(r"[?#]", text):
        raise ValueError("write an address such as http://localhost:8080")
    return text


def spark_address(text: str) -> str:
    """The same for a Spark Connect server: pyspark's own errors repeat what they do not understand."""
    server = re.match(r"sc://[^/;]*", text)
    if not server or not _names_a_server(server[0], ("sc",)) or not _SPARK_PARAMETERS.fullmatch(text, server.end()):
        raise ValueError(
            "write an address such as sc://localhost:15002, and parameters after it as /;name=value;name=value with"
            " their values percent-encoded"
        )
    return text


def masked(address: str) -> str:
    """An address as people may see it: without the user and password, and without a Spark address's parameters."""
    return re.sub(r"(?<=://)[^/]*@", "***@", address).partition("/;")[0]


def without_user(address: str) -> str:
    """An address without the user and password it may carry."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _names_a_server(text: str, schemes: tuple[str, ...]) -> bool:
    if re.search(r"\s", text):
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:  # also of a name that no resolver takes
        return False
