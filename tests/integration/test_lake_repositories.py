import pytest
from pydantic import SecretStr

from perago.lake.errors import LakeNotFound, LakeUnauthorised, LakeUnreachable
from perago.lake.repositories import LakeClient
from tests.conftest import Servers


def test_a_repository_is_made_once_and_found_the_second_time(lake: LakeClient, repository: str) -> None:
    head = lake.branch(repository, "main").commit

    made_again = lake.ensure_repository(repository, f"local://{repository}")

    assert not made_again
    assert lake.branch(repository, "main").commit == head


def test_a_missing_branch_is_told_apart_from_a_missing_server(lake: LakeClient, repository: str) -> None:
    assert lake.find_branch(repository, "nowhere") is None
    with pytest.raises(LakeNotFound, match=f"404 while reading branch nowhere of repository {repository}"):
        lake.branch(repository, "nowhere")


def test_wrong_credentials_are_named_and_not_shown(servers: Servers) -> None:
    endpoint, key, _ = servers.config.require_lakefs()
    stranger = LakeClient(endpoint, key, SecretStr("not-the-secret"))

    with pytest.raises(LakeUnauthorised, match="LAKECTL_CREDENTIALS") as refusal:
        stranger.branch("any", "main")

    assert "not-the-secret" not in str(refusal.value)


def test_a_server_that_is_not_there_is_said_to_be_unreachable() -> None:
    nobody = LakeClient("http://127.0.0.1:9", "key", SecretStr("secret"))

    with pytest.raises(LakeUnreachable, match="LAKECTL_SERVER_ENDPOINT_URL"):
        nobody.branch("any", "main")
