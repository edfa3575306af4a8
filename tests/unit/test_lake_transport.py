"""Answers as they come over a connection."""

from io import BufferedReader, BytesIO

import pytest

from perago.lake.transport import Response

MD5 = "0cc175b9c0f1b6a831c399e269772661"


@pytest.mark.parametrize(
    ("header", "md5"),
    [
        ("Server: s3", MD5),
        ("x-amz-server-side-encryption: AES256", MD5),
        ("x-amz-server-side-encryption: aws:kms", None),
        ("x-amz-server-side-encryption: aws:kms:dsse", None),
        ("x-amz-server-side-encryption-customer-algorithm: AES256", None),
    ],
)
def test_a_tag_tells_the_contents_md5_unless_the_storage_encrypts_it_with_a_key(header: str, md5: str | None) -> None:
    head = f'HTTP/1.1 200 OK\r\nETag: "{MD5}"\r\n{header}\r\nContent-Length: 0\r\n\r\n'

    assert Response(BufferedReader(BytesIO(head.encode()))).md5 == md5  # pyright: ignore[reportArgumentType]


def test_a_chunked_answer_is_read_chunk_by_chunk_whatever_length_it_claims() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    response = Response(BufferedReader(BytesIO(head + b"4\r\nabcd\r\n0\r\n\r\n")))  # pyright: ignore[reportArgumentType]

    assert response.read() == b"abcd"
    assert response.is_finished and not response.keeps_alive
