"""What the demo's coding agent says and does: find out why a Flask project does not start, repair it, prove it."""

from __future__ import annotations

from satchel.engines import Call, Intent, Keep, Recall, Remember, Say, Script, Text
from satchel.engines.script import same

INSTALL_SECONDS = 120

ENTRY_CONFIRMED = Text("已确认项目入口 {entry}", "Confirmed the project's entry {entry}")
REPRODUCED = Text("已复现 ModuleNotFoundError", "Reproduced ModuleNotFoundError")
LACKS = Text("已确认 requirements.txt 缺少 {module}", "Confirmed that requirements.txt lacks {module}")
REPAIRED = Text("已在 requirements.txt 补充 {module}", "Added {module} to requirements.txt")
VERIFIED = Text("已启动项目并通过 {tests} 个测试", "Started the project and passed {tests} tests")

LOOK_AT_FILES = Text("查看项目文件并复现启动失败", "Look at the project's files and reproduce the failure")
REPAIR = Text("补充依赖并重新验证", "Add the dependency and verify again")
VERIFY = Text("安装依赖、启动项目并运行测试", "Install the dependencies, start the project and run its tests")
CONFIRM = Text("请用户确认修复结果", "Let the user confirm the repair")

DIAGNOSE = Intent(
    name="diagnose",
    example=Text("帮我修复这个 Flask 项目启动失败问题。", "Find out why this Flask project does not start."),
    says=(
        r"启动失败|启动不了|起不来|无法启动|分析.*(?:错误|失败)|定位.*问题",
        r"\b(?:fix|repair|find out|why|diagnose)\b.*\b(?:start|starts|starting|start-?up)\b",
    ),
    begins=Text("修复 Flask 项目启动失败", "Repair the Flask project that does not start"),
    follows=LOOK_AT_FILES,
    steps=(
        Remember(set={"next_action": LOOK_AT_FILES}),
        Recall(name="entry", field="completed", pattern=r"(?:已确认项目入口|Confirmed the project's entry) (\S+)"),
        Call(
            tool="list_files",
            because=Text("我先检查项目结构。", "I look at the project's structure first."),
            known_by=ENTRY_CONFIRMED,
        ),
        Call(
            tool="read_file",
            arguments={"path": "README.md"},
            because=Text("README 会说明入口和启动方式。", "The README tells the entry and how to start."),
            keep={"entry": Keep("content", r"`(\S+\.py)` is the entry")},
            known_by=ENTRY_CONFIRMED,
        ),
        Call(
            tool="read_file",
            arguments={"path": "{entry}"},
            because=Text("入口是 {entry},看看它导入了什么。", "The entry is {entry}; I look at what it imports."),
            known_by=ENTRY_CONFIRMED,
        ),
        Remember(
            append={"completed": (ENTRY_CONFIRMED,), "important_files": (same("{entry}"),)},
        ),
        Call(
            tool="run_shell",
            arguments={"command": "python3 {entry}"},
            because=Text("实际启动一次,复现问题。", "I start it for real, to reproduce the problem."),
            keep={"module": Keep("stderr", r"ModuleNotFoundError: No module named '([\w.]+)'")},
        ),
        Remember(append={"completed": (REPRODUCED,), "errors": (same("ModuleNotFoundError: {module}"),)}),
        Call(
            tool="read_file",
            arguments={"path": "requirements.txt"},
            because=Text("缺的是 {module},检查依赖列表。", "{module} is missing; I look at the list of dependencies."),
            keep={"requirements": Keep("content")},
        ),
        Remember(
            append={"completed": (LACKS,), "important_files": (same("requirements.txt"),)},
            set={"next_action": REPAIR},
        ),
        Say(
            Text(
                "原因找到了:{entry} 导入 {module},但 requirements.txt 没有它,所以启动时报 ModuleNotFoundError。",
                "Found it: {entry} imports {module}, which requirements.txt lacks, hence the ModuleNotFoundError.",
            )
        ),
    ),
)

REPAIR_DEPENDENCY = Intent(
    name="repair",
    example=Text("可以,按这个方案修。", "Go ahead, repair it."),
    says=(r"方案修|继续修|补充依赖|修(?:复|好)?依赖", r"\b(?:repair|fix) (?:it|the dependenc|requirements)"),
    follows=REPAIR,
    steps=(
        Recall(
            name="module",
            field="errors",
            pattern=r"ModuleNotFoundError: (\S+)",
            what=Text("缺失模块的记录", "the module that is missing"),
        ),
        Call(
            tool="read_file",
            arguments={"path": "requirements.txt"},
            because=Text("先看依赖列表。", "First the list of dependencies."),
            keep={"requirements": Keep("content")},
            known_by=LACKS,
        ),
        Call(
            tool="write_file",
            arguments={"path": "requirements.txt", "content": "{requirements}{module}>=2.31\n"},
            because=Text("把 {module} 加进 requirements.txt。", "I add {module} to requirements.txt."),
        ),
        Remember(append={"completed": (REPAIRED,)}, set={"next_action": VERIFY}),
        Say(Text("requirements.txt 已补上 {module}。", "requirements.txt has {module} now.")),
    ),
)

RUN_TESTS = Intent(
    name="verify",
    example=Text("再帮我跑完整测试。", "Now run all tests."),
    says=(r"(?:跑|运行|执行).*测试|重新验证", r"\b(?:run|rerun)\b.*\btests?\b|\bverify\b"),
    follows=VERIFY,
    steps=(
        Recall(
            name="module",
            field="completed",
            pattern=r"(?:已在 requirements\.txt 补充|Added) (\S+)",
            what=Text("已修复的依赖", "a dependency that was added"),
        ),
        Call(
            tool="run_shell",
            arguments={"command": "pip install -q -r requirements.txt", "timeout": INSTALL_SECONDS},
            because=Text("安装 requirements.txt 里的依赖。", "I install what requirements.txt lists."),
            expect={"exit_code": 0},
        ),
        Call(
            tool="run_shell",
            arguments={"command": "python3 app.py --check"},
            because=Text("启动项目,让它访问自己的页面。", "I start the project and let it fetch its own page."),
            expect={"exit_code": 0},
            keep={"started": Keep("stdout", r"(OK .+)")},
        ),
        Call(
            tool="run_shell",
            arguments={"command": "python3 -m unittest -v"},
            because=Text("它启动了。运行全部测试。", "It starts. Now all its tests."),
            expect={"exit_code": 0},
            keep={"tests": Keep("stderr", r"Ran (\d+) tests? in [\d.]+s\s+OK")},
        ),
        Remember(
            remove={"errors": (same("ModuleNotFoundError: {module}"),)},
            append={"completed": (VERIFIED,)},
            set={"next_action": CONFIRM},
        ),
        Say(
            Text(
                "项目能启动了({started}),{tests} 个测试全部通过。", "It starts ({started}) and all {tests} tests pass."
            )
        ),
    ),
)

RUN_COMMAND = Intent(
    name="command",
    example=Text("执行命令:python3 --version", "Run the command: python3 --version"),
    says=(r"(?:执行|运行)命令\s*[::]\s*(?P<command>.+?)\s*$", r"\brun (?:the )?command\s*[::]\s*(?P<command>.+?)\s*$"),
    steps=(
        Remember(
            default={
                "goal": Text("执行命令 {command}", "Run the command {command}"),
                "next_action": Text("确认 {command} 的结果", "Find out how {command} ended"),
            }
        ),
        Call(
            tool="run_shell",
            arguments={"command": "{command}"},
            because=Text("执行 {command}。", "I run {command}."),
            keep={"code": Keep("exit_code")},
        ),
        Remember(append={"completed": (Text("{command} 的退出码是 {code}", "{command} ended with exit code {code}"),)}),
        Say(Text("{command} 的退出码是 {code}。", "{command} ended with exit code {code}.")),
    ),
)

CODING = Script(name="coding", intents=(RUN_COMMAND, RUN_TESTS, REPAIR_DEPENDENCY, DIAGNOSE))
