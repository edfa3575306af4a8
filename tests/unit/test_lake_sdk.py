"""lakeFS's SDK is imported in part, and whole for whoever wants it."""

import subprocess
import sys

import pytest


def told(script: str) -> str:
    """What a fresh interpreter prints."""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_the_gateway_imports_no_calls_that_it_never_makes() -> None:
    script = "import sys, perago.lake.control; print('lakefs_sdk.api.auth_api' in sys.modules)"

    assert told(script) == "False"


@pytest.mark.parametrize(
    "use",
    [
        "import lakefs_sdk; print(lakefs_sdk.AuthApi.__name__)",
        "import lakefs_sdk.models; print(lakefs_sdk.models.StorageURI and lakefs_sdk.api.AuthApi.__name__)",
        "from lakefs_sdk import *; print(AuthApi.__name__)",
    ],
)
def test_a_body_finds_everything_of_the_sdk_wherever_it_looks(use: str) -> None:
    assert told(f"import perago.lake.control; {use}") == "AuthApi"


def test_an_sdk_that_was_imported_before_stays_as_it_is() -> None:
    assert told("import lakefs_sdk; import perago.lake; print(lakefs_sdk.AuthApi.__name__)") == "AuthApi"


def test_a_name_the_sdk_does_not_have_is_missing_as_ever() -> None:
    assert told("import perago.lake, lakefs_sdk; print(getattr(lakefs_sdk, 'NoSuchApi', 'missing'))") == "missing"
