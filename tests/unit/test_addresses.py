"""Addresses may carry secrets: wrong ones are refused without being repeated, right ones shown without them."""

import pytest

from perago.addresses import http_address, masked, spark_address, without_user


@pytest.mark.parametrize(
    "address",
    [
        "http://localhost",
        "http://localhost:8080/api",
        "https://user:p%2Fw@conductor.example:8443/below/api/",
        "http://user:p@ss;word@h",
        "http://[::1]:8000",
        "HTTP://H",
        "http://münchen.example",
    ],
)
def test_an_http_address_is_taken_as_it_is(address: str) -> None:
    assert http_address(address) == address


@pytest.mark.parametrize(
    "address",
    [
        *("localhost:8000", "hush", "", "http://", "http:///hush", "ftp://hush", "//hush", "http://:80"),
        *("http://[::1", "http://hush:port", "http://hush:70000", "http://hush:0", "http://user:hu/sh@h"),
        *("http://hush here", "http://hush\n", "http://hush..x", "http://h/?token=hush", "http://h/#hush"),
    ],
)
def test_what_is_no_http_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(ValueError, match="write an address such as http://localhost:8080") as refused:
        http_address(address)

    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        *("sc://localhost", "sc://localhost:15002", "sc://localhost:15002/", "sc://[::1]:15002"),
        *("sc://h/;token=hush", "sc://h:1/;use_ssl=true;token=a%3D%3D;", "sc://h/;user_id=", "sc://user:pw@h/"),
    ],
)
def test_a_spark_address_is_taken_as_it_is(address: str) -> None:
    assert spark_address(address) == address


@pytest.mark.parametrize(
    "address",
    [
        *("localhost:15002", "local[*]", "", "sc://", "sc:///;token=hush", "http://h:15002", "sc://h:port"),
        *("sc://h;token=hush", "sc://h/path", "sc://h/path;token=hush", "sc://h/;token=hush=", "sc://h/;hush"),
        *("sc://h/;token=hu/sh", "sc://h/;token=hush?", "sc://h/;token=hush#", "sc://h/;token=hu sh", "sc://h/;;"),
    ],
)
def test_what_pyspark_would_repeat_is_refused_before_it_sees_it(address: str) -> None:
    with pytest.raises(ValueError, match="write an address such as sc://localhost:15002") as refused:
        spark_address(address)

    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://h:8080/api", "http://h:8080/api"),
        ("http://user:hush@h:8080/api", "http://***@h:8080/api"),
        ("http://hush@h", "http://***@h"),
        ("http://user:hu@sh;hush@h/a@b", "http://***@h/a@b"),
        ("sc://h:15002/;token=hush", "sc://h:15002"),
        ("sc://user:hush@h:15002/;token=hu@sh", "sc://***@h:15002"),
        ("sc://h:15002", "sc://h:15002"),
    ],
)
def test_an_address_is_shown_without_its_secrets(address: str, shown: str) -> None:
    assert masked(address) == shown


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("http://user:hu@sh@h:8000/x", "http://h:8000/x"),
        ("https://h", "https://h"),
        ("http://u@[::1]:1", "http://[::1]:1"),
    ],
)
def test_a_user_can_be_taken_out_of_an_address(address: str, plain: str) -> None:
    assert without_user(address) == plain
