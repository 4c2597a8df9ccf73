"""`gpuherd volumes`: a list, one more, one less."""

from __future__ import annotations

import json

from tests.entrypoints.cli.support import Cli, FakeApi

DATA = {"id": "v-1", "name": "data", "region": "CN-HK-01", "sizeGb": 100, "hourlyPrice": "0.008333"}
LIST = {"volumes": [DATA], "total": 1, "hourlyTotal": "0.008333"}


def test_a_volume_is_made_and_listed(cli: Cli, api: FakeApi) -> None:
    api.script(DATA, LIST)
    made = cli("volumes", "create", "data", "--region", "CN-HK-01", "--size", "100", "--quiet")
    assert made.stdout == "v-1\n"
    assert api.seen[0].body == {"name": "data", "region": "CN-HK-01", "sizeGb": 100}
    assert json.loads(cli("volumes", "ls").stdout)["volumes"] == [DATA]


def test_one_is_removed_by_its_name_and_only_if_one_is_meant(cli: Cli, api: FakeApi) -> None:
    api.script(LIST, {"id": "v-1", "removed": True})
    assert json.loads(cli("volumes", "rm", "data", "--yes").stdout) == {"id": "v-1", "removed": True}
    assert (api.seen[1].method, api.seen[1].path) == ("DELETE", "/api/volumes/v-1")
    api.script({**LIST, "volumes": [DATA, {**DATA, "id": "v-2"}]})
    assert cli("volumes", "rm", "data", "--yes").exit_code == 5
    assert cli("volumes", "rm", "other", "--yes").exit_code == 4
    assert cli("volumes", "rm", "data").exit_code == 2


def test_a_list_for_programs_is_the_answer_of_the_api(cli: Cli, api: FakeApi) -> None:
    answer = {"volumes": [], "total": 0, "hourlyTotal": "0"}
    api.script(answer)
    assert json.loads(cli("volumes", "ls", "--json").stdout) == answer
