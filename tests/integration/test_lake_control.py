import traceback

import pytest
from pydantic import SecretStr

from perago.lake.control import LakeControl
from perago.lake.errors import LakeNotFound, LakeUnauthorised, LakeUnreachable
from tests.conftest import Servers


def test_a_repository_is_made_once_and_found_the_second_time(lake: LakeControl, repository: str) -> None:
    head = lake.head(repository, "main").id

    made_again = lake.ensure_repository(repository, f"local://{repository}")

    assert not made_again
    assert lake.head(repository, "main").id == head


def test_a_missing_branch_is_told_apart_from_a_missing_server(lake: LakeControl, repository: str) -> None:
    assert not lake.branch_exists(repository, "nowhere")
    with pytest.raises(LakeNotFound, match=f"404 while reading branch nowhere of repository {repository}"):
        lake.head(repository, "nowhere")


def test_wrong_credentials_are_named_and_not_shown(servers: Servers) -> None:
    endpoint, key, _ = servers.config.require_lakefs()
    stranger = LakeControl(endpoint, key, SecretStr("not-the-secret"))

    with pytest.raises(LakeUnauthorised, match="LAKECTL_CREDENTIALS") as refusal:
        stranger.head("any", "main")

    assert "not-the-secret" not in str(refusal.value)


def test_a_server_that_is_not_there_is_said_to_be_unreachable_and_its_address_is_not_shown() -> None:
    nobody = LakeControl("http://127.0.0.1:9", "key", SecretStr("secret"))

    with pytest.raises(LakeUnreachable, match="LAKECTL_SERVER_ENDPOINT_URL") as refusal:
        nobody.head("any", "main")

    assert "127.0.0.1" not in "".join(traceback.format_exception(refusal.value))
