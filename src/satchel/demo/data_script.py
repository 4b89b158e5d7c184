"""What the demo's data agent says and does: find what made income drop, by media, then by position."""

from __future__ import annotations

from satchel.engines import Call, Intent, Keep, Recall, Remember, Say, Script, Text

INCOME_DOWN = Text("收入下降 {drop}%", "Income is down {drop}%")
ECPM_DOWN = Text("eCPM 下降 {price_drop}%", "eCPM is down {price_drop}%")
ODD_MEDIA = Text("{media} 是主要异常来源", "{media} is the main source")
ODD_POSITION = Text("{position} eCPM 异常({ecpm})", "The eCPM of {position} is abnormal ({ecpm})")

BY_MEDIA = Text("按媒体下钻", "Drill down by media")
BY_POSITION = Text("按广告位下钻", "Drill down by ad position")
INSPECT = Text("检查 {position} 的流量来源和底价", "Inspect the traffic and the floor price of {position}")

# The two days side by side, of all rows or of those of one group; `%+d%%` makes -20% of it.
_CHANGE = """\
-- Yesterday against the day before{shown_by}
WITH day AS (
  SELECT date{column}, sum(income) AS income, sum(impressions) AS impressions,
         1000.0 * sum(income) / sum(impressions) AS ecpm
  FROM ads_daily{where} GROUP BY date{column}
)
SELECT {shown}printf('%+d%%', round(100.0 * after.income / before.income - 100)) AS income,
       printf('%+d%%', round(100.0 * after.impressions / before.impressions - 100)) AS impressions,
       printf('%+d%%', round(100.0 * after.ecpm / before.ecpm - 100)) AS ecpm
FROM latest_days
JOIN day AS after ON after.date = latest_days.yesterday
JOIN day AS before ON before.date = latest_days.day_before{joined}
ORDER BY after.income - before.income"""


def _by(column: str, where: str = "") -> str:
    return _CHANGE.format(
        shown_by=f", by {column}{where.lower()}",
        column=f", {column}",
        where=where,
        shown=f"after.{column}, ",
        joined=f" AND before.{column} = after.{column}",
    )


OVERALL_SQL = _CHANGE.format(shown_by="", column="", where="", shown="", joined="")
MEDIA_SQL = _by("media")
POSITION_SQL = _by("position", " WHERE media = '{media}'")

OVERALL = Intent(
    name="overall",
    example=Text("昨天收入为什么下降?", "Why did income drop yesterday?"),
    says=(r"收入.*(?:下降|下跌|减少|跌)", r"\bincome\b.*\b(?:drop|down|fall|fell|decreas)|\bwhy\b.*\bincome\b"),
    begins=Text("找出昨天收入下降的原因", "Find out why income dropped yesterday"),
    steps=(
        Call(
            tool="run_sql",
            arguments={"sql": OVERALL_SQL},
            because=Text("先确认整体异常。", "First the overall picture."),
            keep={
                "income": Keep("rows.0.0"),
                "impressions": Keep("rows.0.1"),
                "ecpm": Keep("rows.0.2"),
                "drop": Keep("rows.0.0", r"-(\d+)%"),
                "price_drop": Keep("rows.0.2", r"-(\d+)%"),
            },
        ),
        Remember(append={"completed": (INCOME_DOWN, ECPM_DOWN)}, set={"next_action": BY_MEDIA}),
        Say(
            Text(
                "收入 {income},eCPM {ecpm},展示量 {impressions}:量没有少,是单价掉了。",
                "Income {income}, eCPM {ecpm}, impressions {impressions}: not fewer, but cheaper.",
            )
        ),
    ),
)

_RECALL_DROP = Recall(
    name="drop",
    field="completed",
    pattern=r"(?:收入下降|Income is down) (\d+)%",
    what=Text("收入下降的结论", "how far income is down"),
)

MEDIA = Intent(
    name="media",
    example=Text("继续看看是哪个媒体。", "Go on: which media is it?"),
    says=(r"哪个媒体|按媒体", r"\b(?:which|by) media\b"),
    follows=BY_MEDIA,
    steps=(
        _RECALL_DROP,
        Call(
            tool="run_sql",
            arguments={"sql": MEDIA_SQL},
            because=Text("收入下降 {drop}%,按媒体拆开看。", "Income is down {drop}%; I split it by media."),
            keep={"media": Keep("rows.0.0"), "income": Keep("rows.0.1"), "ecpm": Keep("rows.0.3")},
        ),
        Remember(append={"completed": (ODD_MEDIA,)}, set={"next_action": BY_POSITION}),
        Say(
            Text(
                "收入下降 {drop}% 的主要异常来源是 {media}:它的收入 {income},eCPM {ecpm}。",
                "The main source of the {drop}% is {media}: its income is {income}, its eCPM {ecpm}.",
            )
        ),
    ),
)

POSITION = Intent(
    name="position",
    example=Text("那再按广告位拆。", "Now split it by ad position."),
    says=(r"广告位", r"\bpositions?\b"),
    follows=BY_POSITION,
    steps=(
        _RECALL_DROP,
        Recall(
            name="media",
            field="completed",
            pattern=r"(media_\w+)",
            what=Text("异常媒体的结论", "which media is the source"),
        ),
        Call(
            tool="run_sql",
            arguments={"sql": POSITION_SQL},
            because=Text("在 {media} 里按广告位拆。", "I split {media} by position."),
            keep={"position": Keep("rows.0.0"), "income": Keep("rows.0.1"), "ecpm": Keep("rows.0.3")},
        ),
        Remember(append={"completed": (ODD_POSITION,)}, set={"next_action": INSPECT}),
        Say(
            Text(
                "定位到了:{media} 的 {position},收入 {income},eCPM {ecpm}。收入下降 {drop}% 就是它造成的。",
                "Found it: {position} of {media}, income {income}, eCPM {ecpm}. It explains the {drop}%.",
            )
        ),
    ),
)

DATA = Script(name="data", intents=(POSITION, MEDIA, OVERALL))
