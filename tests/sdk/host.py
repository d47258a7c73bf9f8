"""A host on the official Python SDK (1.x): host.py MODE LABEL COMMAND...

Runs the checks of MODE (fake, everything, time, calculator or together) in one session with a server that
COMMAND starts, and prints one JSON line a check: {"check", "ok", "detail"}. Ends with 1 if one failed.
"""
import json
import os
import sys

import anyio
import mcp.types as types
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import McpError
from pydantic import AnyUrl

PATIENCE = 30


class Host:
    """One session and everything that the server said unasked."""

    def __init__(self, label):
        self.label = label
        self.session = None
        self.heard = []
        self.logged = []
        self.failed = 0

    async def on_message(self, message):
        root = getattr(message, "root", None)
        if hasattr(root, "method"):
            self.heard.append(root)

    async def on_log(self, params):
        self.logged.append(params)

    async def check(self, name, body):
        try:
            with anyio.fail_after(PATIENCE * 2):
                detail, ok = await body(), True
        except Exception as error:  # every failure is one line of the report
            detail, ok = f"{type(error).__name__}: {error}", False
        self.failed += not ok
        print(json.dumps({"check": name, "ok": ok, "detail": str(detail)}), flush=True)

    async def call(self, tool, **arguments):
        return await self.session.call_tool(tool, arguments)

    async def text(self, tool, **arguments):
        result = await self.call(tool, **arguments)
        assert not result.isError, result
        return result.content[0].text

    async def hear(self, method, after=0):
        with anyio.fail_after(PATIENCE):
            while True:
                for message in self.heard[after:]:
                    if message.method == method:
                        return message
                await anyio.sleep(0.02)

    async def pages(self, fetch, field):
        items, cursor = [], None
        while True:
            page = await fetch(cursor)
            items += getattr(page, field)
            cursor = page.nextCursor
            if cursor is None:
                return items

    async def code_of(self, body):
        try:
            await body
        except McpError as error:
            return error.error.code
        raise AssertionError("no error came")

    async def cancel_last(self):
        request_id = self.session._request_id - 1
        params = types.CancelledNotificationParams(requestId=request_id, reason="enough")
        notification = types.CancelledNotification(method="notifications/cancelled", params=params)
        await self.session.send_notification(types.ClientNotification(notification))


async def fake_checks(host):
    session = host.session

    async def list_pages():
        names = [tool.name for tool in await host.pages(session.list_tools, "tools")]
        assert len(names) == len(set(names)) and "sum" in names, names
        return f"{len(names)} tools"

    async def call():
        assert await host.text("sum", a=2, b=3) == "5"
        return "5"

    async def progress():
        seen = []

        async def on_progress(progress, total, message=None):
            seen.append((progress, total))

        await session.call_tool("progress", {"n": 4, "ms": 20}, progress_callback=on_progress)
        with anyio.fail_after(PATIENCE):
            while len(seen) < 4:
                await anyio.sleep(0.02)
        assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)], seen
        return seen

    async def cancel():
        async with anyio.create_task_group() as group:
            async def slow():
                await host.call("sleep", ms=60_000)

            group.start_soon(slow)
            await anyio.sleep(0.2)
            await host.cancel_last()
            await anyio.sleep(0.2)
            assert await host.text("sum", a=1) == "1"
            group.cancel_scope.cancel()
        return "the session goes on"

    async def error_result():
        assert await host.code_of(session.send_request(
            types.ClientRequest(types.CallToolRequest(
                method="tools/call", params=types.CallToolRequestParams(name="no-such-tool", arguments={}))),
            types.CallToolResult)) == -32602
        return "-32602"

    async def subscribe():
        await session.subscribe_resource(AnyUrl("fake://one"))
        after = len(host.heard)
        await host.call("update", uri="fake://one")
        update = await host.hear("notifications/resources/updated", after)
        await session.unsubscribe_resource(AnyUrl("fake://one"))
        return update.params.uri

    async def list_changed():
        after = len(host.heard)
        await host.call("list_changed", kind="tools")
        await host.hear("notifications/tools/list_changed", after)
        return "heard"

    async def log_level():
        await session.set_logging_level("warning")
        host.logged.clear()
        await host.call("log", level="info", text="too quiet")
        await host.call("log", level="error", text="loud enough")
        with anyio.fail_after(PATIENCE):
            while not host.logged:
                await anyio.sleep(0.02)
        assert [params.level for params in host.logged] == ["error"], host.logged
        return "filtered"

    async def prompts():
        listed = await host.pages(session.list_prompts, "prompts")
        got = await session.get_prompt(listed[0].name)
        return got.messages[0].content.text

    async def completion():
        ref = types.PromptReference(type="ref/prompt", name="greet")
        return (await session.complete(ref, {"name": "a", "value": "o"})).completion.values

    async def large():
        assert len(await host.text("big", bytes=5_000_000)) == 5_000_000
        return "5 MB"

    async def crash():
        codes = []
        async with anyio.create_task_group() as group:
            async def open_call():
                codes.append(await host.code_of(host.call("sleep", ms=60_000)))

            group.start_soon(open_call)
            await anyio.sleep(0.3)
            codes.append(await host.code_of(host.call("crash")))
        assert codes == [-31001, -31001], codes
        assert await host.text("sum", a=4) == "4"
        return "two errors, and the same session goes on"

    for name, body in [
        ("list", list_pages), ("call", call), ("progress", progress), ("cancel", cancel), ("error", error_result),
        ("subscribe", subscribe), ("list_changed", list_changed), ("log_level", log_level), ("prompts", prompts),
        ("completion", completion), ("large", large), ("crash", crash),
    ]:
        await host.check(name, body)


async def everything_checks(host):
    session = host.session

    async def list_all():
        tools = await host.pages(session.list_tools, "tools")
        resources = await host.pages(session.list_resources, "resources")
        assert len(tools) >= 10 and resources
        return f"{len(tools)} tools, {len(resources)} resources"

    async def call():
        assert "hello" in await host.text("echo", message="hello")
        assert "5" in await host.text("get-sum", a=2, b=3)
        return "echo and sum"

    async def progress():
        seen = []

        async def on_progress(progress, total, message=None):
            seen.append(progress)

        await session.call_tool("trigger-long-running-operation", {"duration": 1, "steps": 4}, progress_callback=on_progress)
        assert seen and seen == sorted(seen), seen
        return seen

    async def error_result():
        result = await host.call("get-sum", a="not a number", b=3)
        assert result.isError
        return "isError"

    async def structured():
        result = await host.call("get-structured-content", location="New York")
        return result.content[0].text

    async def image():
        result = await host.call("get-tiny-image")
        kinds = [block.type for block in result.content]
        assert "image" in kinds, kinds
        return kinds

    async def read():
        contents = (await session.read_resource(AnyUrl("demo://resource/dynamic/text/1"))).contents
        assert contents[0].text
        return contents[0].mimeType

    async def subscribe():
        uri = AnyUrl("demo://resource/dynamic/text/1")
        await session.subscribe_resource(uri)
        after = len(host.heard)
        await host.call("toggle-subscriber-updates")
        update = await host.hear("notifications/resources/updated", after)
        await host.call("toggle-subscriber-updates")
        await session.unsubscribe_resource(uri)
        return update.params.uri

    async def log_level():
        await session.set_logging_level("error")
        return "set"

    async def prompts():
        listed = [prompt.name for prompt in await host.pages(session.list_prompts, "prompts")]
        got = await session.get_prompt("args-prompt", {"city": "Vienna"})
        assert "Vienna" in got.messages[0].content.text
        return listed

    async def completion():
        ref = types.PromptReference(type="ref/prompt", name="completable-prompt")
        values = (await session.complete(ref, {"name": "department", "value": "E"})).completion.values
        assert values, "no values"
        return values

    for name, body in [
        ("list", list_all), ("call", call), ("progress", progress), ("error", error_result), ("structured", structured),
        ("image", image), ("read", read), ("subscribe", subscribe), ("log_level", log_level), ("prompts", prompts),
        ("completion", completion),
    ]:
        await host.check(name, body)


async def time_checks(host):
    async def list_all():
        names = [tool.name for tool in await host.pages(host.session.list_tools, "tools")]
        assert "convert_time" in names, names
        return names

    async def call():
        return await host.text(
            "convert_time", source_timezone="Europe/Vienna", time="12:00", target_timezone="Asia/Tokyo")

    async def error_result():
        result = await host.call("get_current_time", timezone="Nowhere/Nothing")
        assert result.isError
        return "isError"

    for name, body in [("list", list_all), ("call", call), ("error", error_result)]:
        await host.check(name, body)


async def calculator_checks(host):
    async def list_all():
        names = {tool.name for tool in await host.pages(host.session.list_tools, "tools")}
        assert {"add", "subtract", "multiply", "divide"} <= names, names
        return sorted(names)

    async def call():
        assert await host.text("add", a=2, b=3) == "5"
        return "5"

    async def error_result():
        result = await host.call("divide", a=1, b=0)
        assert result.isError
        return "isError"

    for name, body in [("list", list_all), ("call", call), ("error", error_result)]:
        await host.check(name, body)


async def together_checks(host):
    """Many calls at once beside another host that uses the same ids and tokens."""

    async def calls():
        wrong, done, steps = [], 0, 0

        async def one(number):
            nonlocal done, steps
            text = f"{host.label} {number}"
            seen = []

            async def on_progress(progress, total, message=None):
                seen.append(progress)

            if number % 10 == 0:
                await host.session.call_tool("progress", {"n": 2, "ms": 5}, progress_callback=on_progress)
                wrong.extend(seen if seen != sorted(set(seen)) else [])
                steps += len(seen)
            else:
                got = await host.text("sleep", ms=number % 7, text=text)
                wrong.extend([got] if got != text else [])
            done += 1

        limit = anyio.CapacityLimiter(20)

        async def limited(number):
            async with limit:
                await one(number)

        async with anyio.create_task_group() as group:
            for number in range(300):
                group.start_soon(limited, number)
        assert not wrong and done == 300, (wrong, done)
        assert 30 <= steps <= 60, steps
        return f"{done} calls, each answered with its own, {steps} steps of progress"

    async def cancel():
        kept = []
        async with anyio.create_task_group() as group:
            async def keep():
                kept.append(await host.text("sleep", ms=1_500, text=host.label))

            async def slow():
                await host.call("sleep", ms=60_000)

            group.start_soon(keep)
            await anyio.sleep(0.1)
            group.start_soon(slow)
            await anyio.sleep(0.2)
            await host.cancel_last()
            with anyio.fail_after(PATIENCE):
                while not kept:
                    await anyio.sleep(0.02)
            group.cancel_scope.cancel()
        assert kept == [host.label], kept
        return "the other call goes on"

    async def level():
        mine = "error" if host.label == "python" else "debug"
        await host.session.set_logging_level(mine)
        host.logged.clear()
        for sent in ["debug", "error"]:
            await host.call("log", level=sent, text=host.label)
        with anyio.fail_after(PATIENCE):
            while not host.logged:
                await anyio.sleep(0.02)
        assert all(params.level == "error" for params in host.logged) or mine == "debug", host.logged
        return mine

    async def subscribe():
        uri = AnyUrl(f"fake://{host.label}")
        await host.session.subscribe_resource(uri)
        after = len(host.heard)
        await host.call("update", uri=f"fake://{host.label}")
        update = await host.hear("notifications/resources/updated", after)
        assert str(update.params.uri).rstrip("/") == f"fake://{host.label}", update
        return str(update.params.uri)

    for name, body in [("calls", calls), ("cancel", cancel), ("level", level), ("subscribe", subscribe)]:
        await host.check(name, body)


CHECKS = {
    "fake": fake_checks,
    "everything": everything_checks,
    "time": time_checks,
    "calculator": calculator_checks,
    "together": together_checks,
}


async def main(mode, label, command):
    host = Host(label)
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write, message_handler=host.on_message, logging_callback=host.on_log) as session:
            host.session = session

            async def initialize():
                result = await session.initialize()
                return f"{result.protocolVersion} {result.serverInfo.name}"

            await host.check("initialize", initialize)
            if not host.failed:
                await CHECKS[mode](host)
    return host.failed


if __name__ == "__main__":
    sys.exit(1 if anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3:]) else 0)
