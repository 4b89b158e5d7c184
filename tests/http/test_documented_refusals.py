"""Whatever stands in an address, a parameter or a header: the answer is one that the document knows of this operation."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from satchel.http.route import Route
from satchel.http.table import ROUTES
from tests.http.door import Door
from tests.http.requests import REQUESTS

LONG = "x" * 20_000
WRONG = (
    *("", "x", "0", "-1", "1", "9" * 30, "true", "null", "[1]", '{"a":1}', "2026-01-01", "2026-01-01T00:00:00Z"),
    *(
        "ACTIVE",
        "msg_1",
        "run_x/1",
        '"v1"',
        '"v99999999"',
        '""',
        "\t",
        "a\tb",
        "é",
        "x" * 129,
        "x" * 256,
        "x" * 513,
        LONG,
    ),
    *("0.1000000000000000055511151231257827021181", "1e400", "NaN", "[" * 100, "[" * 5000, "[1" + ",1" * 9000 + "]"),
)
QUICK = ("", "9" * 30, "a\tb", "x" * 129, LONG)
HEADERS = ("Idempotency-Key", "If-Match", "If-None-Match", "Satchel-Attempt", "Satchel-Acting-For", "Last-Event-ID")


@pytest.mark.parametrize("values", [QUICK, pytest.param(WRONG, marks=pytest.mark.full)], ids=["few", "all"])
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_every_answer_to_a_wrong_parameter_is_documented(
    door: Door, route: Route, values: tuple[str, ...]
) -> None:
    session = (await door.session("adas agent")).rpartition("/")[2]
    run = (await door("POST", f"/v1/sessions/{session}/runs", who="adas agent", json={"start": True})).json()
    parts = {"session_id": session, "run_id": run["run_id"], "message_id": "msg_1", "seq": "1"}
    url = route.path.format(**parts)
    body = REQUESTS[route.name].body if route.name in REQUESTS else None
    seen = set()

    async def send(address: str, **headers: str) -> None:
        sent = {"Satchel-Attempt": f"{run['run_id']}/1"} if route.attempt == "must" else {}
        json = {} if body is None and route.body is not None else body
        encoded = {name: value.encode() for name, value in (sent | headers).items()}
        answer = await door(route.method, address, who="adas agent", json=json, headers=encoded)  # type: ignore[arg-type]  # bytes, as they are sent
        assert answer.status_code < 500, (address, headers, answer.text)
        seen.add(answer.status_code)

    for value in values:
        for parameter in route.query:
            name = f"{parameter.name}.k" if parameter.kind == "members" else parameter.name
            await send(f"{url}?{name}={quote(value)}")
        for name in HEADERS:
            await send(url, **{name: value})
        for part in route.path_parameters:
            await send(route.path.format(**parts | {part: quote(value, safe="") or "-"}))
    assert seen
