"""The estimate of tokens against a real tokenizer (o200k, with its vocabulary in the package), on real conversations; and what
counting costs.

The error is that of a whole conversation, as ``session.context_tokens`` has it: Chinese apart.
"""

from __future__ import annotations

import gzip
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import bpe_openai  # type: ignore[import-untyped]  # it ships no types
import msgspec

from benchmarks.appends import message
from benchmarks.figures import Figure, bounded
from satchel.domain.tokens import TokenCounter, estimate_tokens, message_tokens

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "tests" / "data" / "sample.jsonl"
CHINESE = 0.2  # of its characters: a conversation in Chinese, with its JSON and code
BOUNDS = {"en": (0.06, 0.18), "zh": (0.09, 0.28)}  # median and 95th of a hundred
QUICK = 5.0  # µs for a message of 500 bytes


class Conversation(msgspec.Struct):
    messages: list[dict[str, object]]


def files() -> list[Path]:
    """The real conversations, or the sample of the tests."""
    folder = Path(os.environ.get("SATCHEL_TEST_DATA") or ROOT.parent / "shared" / "data")
    found = sorted(folder.glob("*.jsonl.gz"))
    if not found:
        print(f"no *.jsonl.gz in {folder} (SATCHEL_TEST_DATA): only {SAMPLE.name} is measured", file=sys.stderr)
    return found or [SAMPLE]


def conversations() -> Iterator[Conversation]:
    for path in files():
        data = path.read_bytes()
        for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
            yield msgspec.json.decode(line, type=Conversation)


def is_chinese(conversation: Conversation) -> bool:
    text = msgspec.json.encode(conversation.messages).decode()
    return sum("\u4e00" <= char <= "\u9fff" for char in text) > CHINESE * len(text)


def errors(real: TokenCounter) -> dict[str, list[float]]:
    """How far the estimate is off, of each conversation, as a part of what the tokenizer counts."""
    found: dict[str, list[float]] = {"en": [], "zh": []}
    for conversation in conversations():
        said = sum([message_tokens(one, estimate_tokens) for one in conversation.messages])
        is_so = sum([message_tokens(one, real) for one in conversation.messages])
        found["zh" if is_chinese(conversation) else "en"].append(abs(said - is_so) / is_so)
    return found


def time_of_one(*, calls: int, rounds: int) -> float:
    """Microseconds, in the quietest round."""
    said = message(1)
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(calls):
            message_tokens(said, estimate_tokens)
        took.append((time.perf_counter() - began) / calls * 1e6)
    return min(took)


def tokens(*, rounds: int) -> list[Figure]:
    encoding = bpe_openai.get_encoding("o200k_base")
    figures = []
    for language, off in errors(lambda text: len(encoding.encode(text))).items():
        if not off:
            print(f"no conversation is {language}: not measured", file=sys.stderr)
            continue
        ordered = sorted(off)
        median, high = statistics.median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
        for name, value, bound in zip(("p50", "p95"), (median, high), BOUNDS[language], strict=True):
            figures.append(bounded(f"tokens.{language}.{name}", "% off", value * 100, bound=bound * 100))
    figures.append(bounded("tokens.time", "µs", time_of_one(calls=5_000, rounds=rounds), bound=QUICK))
    return figures
