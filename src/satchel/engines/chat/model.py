"""The wire: one request to a chat endpoint, by the client of the extra ``openai``, and what its faults mean for a run."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import cache
from typing import TYPE_CHECKING, Any

from satchel.engines.chat.answer import Answer, whole_characters
from satchel.errors import ExtraMissing, InvalidInput, RunFailed

if TYPE_CHECKING:
    import openai

SAID = 500  # characters of what an endpoint says about a fault


def load_openai() -> Any:
    """The module. Raises ExtraMissing."""
    try:
        import openai
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] != "openai":
            raise
        raise ExtraMissing("openai", action="a chat engine") from missing
    return openai


@cache
def _certificates() -> ssl.SSLContext:
    """Those that this machine trusts; read once, for it takes a while, and each run has a client of its own."""
    import httpx

    context: ssl.SSLContext = httpx.create_ssl_context()
    return context


class Endpoint:
    """Where a model answers. Holds the key, and lets it appear nowhere else."""

    def __init__(self, *, base_url: str | None, api_key: str | None, timeout: float, retries: int) -> None:
        self._openai = load_openai()
        if api_key is None:  # the environment's key belongs to the environment's address, and goes to no other
            api_key = os.environ.get("OPENAI_API_KEY") if base_url is None else None
        base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
        if not api_key and base_url is None:
            raise InvalidInput("is missing: give one, or set OPENAI_API_KEY", field="api_key")
        self._base_url = base_url
        self._api_key = api_key or "none"  # an endpoint of one's own may ask for no key; the client wants to send one
        self._timeout = timeout
        self._retries = retries

    def client(self) -> openai.AsyncOpenAI:
        """A client for the event loop that runs now, to be closed by ``async with``."""
        made: openai.AsyncOpenAI = self._openai.AsyncOpenAI(
            base_url=self._base_url,
            api_key=self._api_key,
            timeout=self._timeout,
            max_retries=self._retries,
            http_client=self._openai.DefaultAsyncHttpxClient(verify=_certificates()),
        )
        return made

    async def ask(
        self,
        client: openai.AsyncOpenAI,
        request: Mapping[str, Any],
        answer: Answer,
        write: Callable[[str], Awaitable[None]],
    ) -> None:
        """Let the model answer: its text goes to ``write`` as it comes, all the rest to ``answer``.

        Before the first piece the client tries again what may pass (a refused connection, 408, 409, 429, 5xx), as often as
        the endpoint was given ``retries``. After it nothing is tried again: it would be said twice. Raises RunFailed with
        ``model_unavailable``, ``model_rate_limited``, ``model_rejected``, ``model_filtered`` or ``model_malformed``.
        """
        async with aclosing(self._chunks(client, request)) as chunks:
            async for chunk in chunks:
                if text := answer.add(chunk):
                    await write(text)
        if text := answer.end():
            await write(text)
        if answer.finish_reason is None:
            raise RunFailed("model_unavailable", "the model's answer was cut before its end")
        if answer.finish_reason == "content_filter":
            raise RunFailed("model_filtered", "the model's provider filtered the answer")

    async def _chunks(
        self, client: openai.AsyncOpenAI, request: Mapping[str, Any]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """What goes wrong in here is the endpoint's fault; what the reader does with a chunk is not."""
        try:
            stream = await client.chat.completions.create(**request)
            async with stream:
                async for chunk in stream:
                    if hasattr(chunk, "to_dict"):  # not what is no object at all
                        yield chunk.to_dict(warnings=False)
        except self._openai.APIStatusError as refused:
            raise self._failed(_code_of_status(refused), refused.message) from None
        except self._openai.APITimeoutError:
            raise self._failed("model_unavailable", f"no answer within {self._timeout:g} s") from None
        except self._openai.APIConnectionError as cut:
            why = cut.__cause__ or cut
            raise self._failed("model_unavailable", f"the connection failed: {type(why).__name__}: {why}") from None
        except self._openai.OpenAIError as fault:  # an error that came in the middle of the stream
            code = getattr(fault, "code", None)
            raise self._failed(
                "model_filtered" if code == "content_filter" else "model_unavailable", f"{fault}"
            ) from None
        except ValueError as wrong:  # no JSON, no UTF-8
            raise self._failed("model_malformed", f"the endpoint's answer cannot be read: {wrong}") from None
        except Exception as fault:
            if not _is_of_transport(fault):
                raise
            raise self._failed("model_unavailable", f"the connection failed: {type(fault).__name__}: {fault}") from None

    def _failed(self, code: str, said: str) -> RunFailed:
        """An endpoint may quote the key that it refuses."""
        return RunFailed(code, self.without_key(whole_characters(said))[:SAID])

    def without_key(self, text: str) -> str:
        return text if self._api_key == "none" else text.replace(self._api_key, "(the key)")


def _is_of_transport(fault: Exception) -> bool:
    """Whether the HTTP library raised it. Before its version 3 the client let these through in the middle of a stream."""
    return any(kind.__module__.partition(".")[0] in ("httpx", "httpx2") for kind in type(fault).__mro__)


def _code_of_status(refused: openai.APIStatusError) -> str:
    if refused.code == "content_filter":
        return "model_filtered"
    if refused.status_code == 429:
        return "model_rate_limited"
    if refused.status_code >= 500 or refused.status_code in (408, 409):
        return "model_unavailable"
    return "model_rejected"
