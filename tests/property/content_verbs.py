"""Messages, tool calls and working memory, in the plain model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from satchel.domain.memory import FIELDS
from satchel.domain.principal import Principal
from tests.property.layers import empty, seen
from tests.property.layers import patched as layer_patched
from tests.property.model import (
    Change,
    Facts,
    Model,
    ModelCall,
    ModelRun,
    ModelSession,
    Refused,
    conflict,
)
from tests.property.rights import Writer, may_write, works


@dataclass(frozen=True)
class Said:
    """A message, and what of it matters."""

    body: bytes
    role: str
    asks: tuple[str, ...] = ()
    answers: str | None = None


class ContentVerbs(Model):
    def append_messages(
        self, who: Principal, session_id: str, *, messages: list[Said], status: str, writer: Writer, **options: Any
    ) -> Facts:
        run_id = None if writer is None else writer[0]

        def effect(session: ModelSession) -> Facts:
            labels = {said.answers for said in messages if said.answers is not None and status == "complete"}
            for call in session.open_calls():
                if call.label in labels and call.run_id not in (None, run_id):
                    raise Refused("run_fenced")
            change = Change(self, session, who.actor)
            seqs = [self._say(change, said, run_id, status) for said in messages]
            return {"seqs": seqs, "version": change.done()}

        allowed = all(may_write(who, said.role) for said in messages) and (status == "complete" or works(who))
        request = ("append", messages, status, writer)
        return self.write(who, session_id, effect, request=request, writer=writer, allowed=allowed, **options)

    def _say(self, change: Change, said: Said, run_id: str | None, status: str) -> int:
        label = said.answers if status == "complete" else None
        ends = [call for call in change.session.open_calls() if label is not None and call.label == label]
        seq = change.message(
            said.body,
            role=said.role,
            asks=said.asks,
            answers=said.answers,
            run_id=run_id,
            status=status,
            refers_to=ends[0].seq if ends else None,
        )
        if ends:
            change.ended_call(ends[0], "succeeded", result="done")
        return seq

    def retract_message(self, who: Principal, session_id: str, *, seq: int, reason: str, **options: Any) -> Facts:
        def effect(session: ModelSession) -> Facts:
            entry = session.log[seq - 1] if seq <= session.last_seq else None
            if entry is None or entry.kind != "message":
                raise Refused("message_not_found")
            if seq in session.taken_back:
                return {"seq": seq, "version": session.version}
            change = Change(self, session, who.actor)
            change.event("message_retracted", run_id=entry.run_id, refers_to=seq, note=reason)
            change.touch("messages")
            session.taken_back.add(seq)
            return {"seq": seq, "version": change.done()}

        def allowed(session: ModelSession) -> bool:
            entry = session.log[seq - 1] if seq <= session.last_seq else None
            gone = entry is None or entry.kind != "message" or session.status == "DELETED"
            return gone or may_write(who, entry.role if entry else None)

        request = ("retract", seq, reason)
        return self.write(who, session_id, effect, request=request, allowed=allowed, **options)

    # -- tool history

    def start_tool_call(
        self,
        who: Principal,
        session_id: str,
        *,
        tool: str,
        arguments: Any,
        label: str | None,
        writer: Writer,
        **options: Any,
    ) -> Facts:
        def effect(session: ModelSession) -> Facts:
            self._label_is_free(session, label)
            change = Change(self, session, who.actor)
            call = self._new_call(change, "tool_call_started", tool, arguments, label, writer)
            return {"seq": call.seq, "status": "started", "repeat_of": call.repeat_of, "version": change.done()}

        request = ("start_tool", tool, arguments, label, writer)
        return self.write(who, session_id, effect, request=request, writer=writer, allowed=works(who), **options)

    def append_tool_history(
        self,
        who: Principal,
        session_id: str,
        *,
        tool: str,
        arguments: Any,
        label: str | None,
        ok: bool,
        value: Any,
        writer: Writer,
        **options: Any,
    ) -> Facts:
        def effect(session: ModelSession) -> Facts:
            self._label_is_free(session, label)
            change = Change(self, session, who.actor)
            call = self._new_call(change, "tool_call_recorded", tool, arguments, label, writer)
            outcome = {"result": value} if ok else {"error": value}
            status = "succeeded" if ok else "failed"
            if change.is_asked(call.run_id, label):
                change.end_call(call, status, **outcome)
            else:
                change.ended_call(call, status, **outcome)
            return {"seq": call.seq, "status": status, "repeat_of": call.repeat_of, "version": change.done()}

        request = ("record_tool", tool, arguments, label, ok, value, writer)
        return self.write(who, session_id, effect, request=request, writer=writer, allowed=works(who), **options)

    def _label_is_free(self, session: ModelSession, label: str | None) -> None:
        if label is not None and any(call.label == label for call in session.open_calls()):
            raise Refused("tool_call_open")

    def _new_call(
        self, change: Change, kind: str, tool: str, arguments: Any, label: str | None, writer: Writer
    ) -> ModelCall:
        run_id = None if writer is None else writer[0]
        same = [c.seq for c in change.session.calls.values() if (c.tool, c.arguments) == (tool, arguments)]
        call = ModelCall(
            seq=change.event(kind, run_id=run_id, note=(tool, arguments, label)),
            version=change.version,
            tool=tool,
            arguments=arguments,
            label=label,
            run_id=run_id,
            start=self.clock.now,
            repeat_of=max(same, default=None),
        )
        change.session.calls[call.seq] = call
        change.touch("tool_history")
        return call

    def finish_tool_call(
        self, who: Principal, session_id: str, *, seq: int, how: str, value: Any, writer: Writer, **options: Any
    ) -> Facts:
        def effect(session: ModelSession) -> Facts:
            call = session.calls.get(seq)
            if call is None:
                raise Refused("tool_call_not_found")
            if call.status != "started":
                raise Refused("tool_call_ended")
            if call.run_id is not None and (writer is None or writer[0] != call.run_id):
                raise Refused("run_fenced")
            change = Change(self, session, who.actor)
            outcome = {"result": value} if how == "succeeded" else {"error": value} if how == "failed" else {}
            change.end_call(call, how, **outcome)
            return {"seq": seq, "status": how, "repeat_of": call.repeat_of, "version": change.done()}

        request = ("finish_tool", seq, how, value, writer)
        return self.write(who, session_id, effect, request=request, writer=writer, allowed=works(who), **options)

    # -- working memory

    def update_working_memory(
        self,
        who: Principal,
        session_id: str,
        *,
        patch: dict[str, Any],
        writer: Writer,
        expected: int | None,
        **options: Any,
    ) -> Facts:
        def patched(memory: dict[str, Any]) -> dict[str, Any]:
            memory = dict(memory)
            for name in patch.get("clear", ()):
                memory.pop(name, None)
            for name, items in patch.get("remove", {}).items():
                memory[name] = [item for item in memory.get(name, []) if item not in items]
            for name, items in patch.get("append", {}).items():
                memory[name] = memory.get(name, []) + items
            return {**memory, **patch.get("set", {})}

        needs_version = bool(patch.get("clear") or patch.get("set"))
        return self._memory(who, session_id, patched, ("patch", patch), needs_version, writer, expected, options, patch)

    def replace_working_memory(
        self,
        who: Principal,
        session_id: str,
        *,
        memory: dict[str, Any],
        writer: Writer,
        expected: int | None,
        **options: Any,
    ) -> Facts:
        patch = {"set": {name: memory.get(name, empty(name)) for name in FIELDS}}
        return self._memory(
            who, session_id, lambda _: dict(memory), ("replace", memory), True, writer, expected, options, patch
        )

    def _memory(
        self,
        who: Principal,
        session_id: str,
        changed: Any,
        request: Any,
        needs_version: bool,
        writer: Writer,
        expected: int | None,
        options: dict[str, Any],
        patch: dict[str, Any],
    ) -> Facts:
        def check(session: ModelSession) -> None:
            if expected is None and needs_version and (writer is None or writer[0] in session.children):
                raise Refused("version_required")
            if expected is None:
                return
            if expected > session.version or session.changed.get("working_memory", 0) > expected:
                raise conflict(session, expected)

        def change_layer(session: ModelSession, run: ModelRun) -> Facts:
            if expected is not None and run.layer_version > expected:
                raise conflict(session, expected)
            layer = layer_patched(run.layer, patch)
            replaced = [name for name, did in layer.items() if did[0] == "holds" and name not in run.layer_base]
            if layer != run.layer or replaced:
                change = Change(self, session, who.actor)
                for name in replaced:
                    run.layer_base[name] = session.memory.get(name, empty(name))
                run.layer, run.layer_version = layer, change.version
                change.wrote_run(run)
                change.event("run_memory_changed", run_id=None if writer is None else writer[0])
                change.done()
            version = max(session.changed.get("working_memory", 0), run.layer_version)
            return {"version": version, "memory": seen(session.memory, run.layer)}

        def effect(session: ModelSession) -> Facts:
            if writer is not None and session.turn is not None and session.runs[session.turn].memory == "run":
                return change_layer(session, session.runs[session.turn])
            memory = {name: value for name, value in changed(session.memory).items() if value}
            if memory == session.memory:
                return {"version": session.version, "memory": memory}
            change = Change(self, session, who.actor)
            change.event("working_memory_changed", run_id=None if writer is None else writer[0], note=request)
            change.touch("working_memory")
            session.memory = memory
            return {"version": change.done(), "memory": memory}

        return self.write(
            who,
            session_id,
            effect,
            request=(*request, writer),
            writer=writer,
            allowed=works(who),
            version_check=check,
            **options,
        )
