"""Every place of the HTTP door that takes JSON of somebody else's, and every number that a double spoils."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx

NUMBERS = (
    "1.10",
    "0.1000000000000000055511151231257827021181",
    "9223372036854775809",
    "1000000000000000000000000000000",
    "-0.0",
    "-0",
    "1E5",
    "1e+22",
    "1e-400",
    "12345678901234567890.5",
)

Send = Callable[..., Awaitable[httpx.Response]]
_SHOWN = re.compile(rb'\\*"(place_[a-z_]+)\\*": ?(-?[0-9][-+.eE0-9]*)')


def shown(text: bytes) -> set[tuple[str, str]]:
    """Places, and the number that each shows."""
    return {(place.decode(), number.decode()) for place, number in _SHOWN.findall(text)}


class Filling:
    """One session, with ``number`` at every place. ``answers``: what its writes were answered."""

    def __init__(self, send: Send, number: str) -> None:
        self._send = send
        self.number = number
        self.places: list[str] = []
        self.answers: list[bytes] = []
        self.session = ""
        self.run = ""
        self._holder = ""

    def json(self, place: str) -> str:
        self.places.append(f"place_{place}")
        return f'{{"place_{place}":{self.number},"deep":[{{"place_{place}":{self.number}}}]}}'

    async def send(
        self, method: str, path: str, body: str, *, holds: str = "", status: tuple[int, ...] = (200, 201)
    ) -> Any:
        headers = {"Satchel-Attempt": holds} if holds else {}
        answer = await self._send(method, self.session + path, who="adas agent", content=body.encode(), headers=headers)
        assert answer.status_code in status, (body, answer.text)
        self.answers.append(answer.content)
        return answer.json()

    async def fill(self) -> None:
        made = await self.send("POST", "/v1/sessions", f'{{"metadata":{self.json("created")}}}')
        self.session = f"/v1/sessions/{made['session_id']}"
        for method, path, body in self.requests():
            await self.send(method, path, body)
        await self._outcomes()
        await self._run()

    def requests(self) -> Iterator[tuple[str, str, str]]:
        json = self.json
        yield "PATCH", "", f'{{"metadata":{{"m":{json("merged")}}}}}'
        yield "POST", "/messages", f'{{"role":"user","content":"a","x":{json("bare")}}}'
        part, metadata = json("part"), json("message_metadata")
        yield "POST", "/messages", f'{{"message":{{"content":[{{"type":"x","x":{part}}}]}},"metadata":{metadata}}}'
        yield "POST", "/messages", f'{{"messages":[{{"content":"c","x":{json("batch")}}}]}}'
        yield "POST", "/messages", f'{{"message":{json("other_format")},"format":"mine"}}'
        asked = f'{{"id":"label","type":"function","function":{{"name":"f","arguments":{json("asked")}}}}}'
        yield "POST", "/messages", f'{{"role":"assistant","content":null,"tool_calls":[{asked}]}}'
        yield "PUT", "/working-memory", f'{{"notes":{{"n":{json("replaced")}}},"expected_version":0}}'
        yield "PATCH", "/working-memory", f'{{"set":{{"notes":{{"n":{json("patched")}}}}},"expected_version":7}}'
        yield "POST", "/tool-history", f'{{"tool":"t","arguments":{json("arguments")},"result":{json("result")}}}'
        yield "POST", "/tool-history", f'{{"tool":"t","arguments":null,"error":{json("error")}}}'

    async def _outcomes(self) -> None:
        for name, label in (("result", ""), ("error", ""), ("result", ',"tool_call_id":"label"')):
            begun = await self.send("POST", "/tool-history", f'{{"tool":"t","arguments":{{}}{label}}}')
            place = self.json(f"finished_{name}{'_said' if label else ''}")
            await self.send("POST", f"/tool-history/{begun['seq']}/result", f'{{"{name}":{place}}}')

    async def _run(self) -> None:
        said = f'{{"role":"user","content":"x","x":{self.json("input")}}}'
        run = await self.send(
            "POST", "/runs", f'{{"input":{said},"metadata":{self.json("run_metadata")},"memory":"run","start":true}}'
        )
        self.run = path = f"/runs/{run['run_id']}"
        holds = f"{run['run_id']}/{run['attempt']}"
        said = f'{{"role":"assistant","content":"x","x":{self.json("spoken")}}}'
        await self.send("POST", f"{path}/text/end", f'{{"message":1,"answer":{said}}}', holds=holds)
        schema = f'{{"type":"object","x":{self.json("schema")}}}'
        question = f'{{"name":"q","question":"?","schema":{schema}}}'
        await self.send("POST", f"{path}/ask", question, holds=holds)
        await self.send("POST", f"{path}/answer", f'{{"answer":{self.json("answer")}}}')
        await self._go_on()
        await self.send("POST", f"{path}/ask", question, holds=self._holder)  # is told the answer
        await self.send("POST", f"{path}/ask", question.replace('"q"', '"again"'), holds=self._holder)

    async def _go_on(self) -> None:
        again = await self.send("POST", f"{self.run}/start", "{}")
        self._holder = f"{again['run_id']}/{again['attempt']}"
        layer = f'{{"set":{{"notes":{{"n":{self.json("layer")}}}}}}}'
        await self.send("PATCH", "/working-memory", layer, holds=self._holder)

    async def end(self) -> None:
        """The run's layer goes into the session's memory."""
        await self.send("POST", f"{self.run}/answer", '{"answer":{}}')
        await self._go_on()
        await self.send("POST", f"{self.run}/complete", "{}", holds=self._holder)
