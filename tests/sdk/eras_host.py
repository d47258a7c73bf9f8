"""A host on the official Python SDK (2.x): eras_host.py MODE COMMAND...

MODE is legacy, auto or a version of the modern era. Does each behaviour once with the server that COMMAND starts
(eras_server.py or eras_server.mjs), as far as it has the tools and ERAS_LEAVE_OUT does not name it, and prints one
JSON line a check: {"check", "ok", "detail"}. Ends with 1 if one failed.
"""
import asyncio
import json
import os
import sys

import mcp_types as types
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

PATIENCE = 60
LEFT_OUT = os.environ.get("ERAS_LEAVE_OUT", "").split(",")


class Host:
    def __init__(self, client, seen):
        self.client = client
        self.seen = seen
        self.offers = None
        self.failed = 0

    @property
    def is_modern(self):
        return self.client.protocol_version >= "2026"

    async def check(self, name, body):
        try:
            async with asyncio.timeout(PATIENCE * 2):
                detail, ok = await body(), True
        except Exception as error:  # every failure is one line of the report
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            detail, ok = f"{type(error).__name__}: {error}", False
        self.failed += not ok
        print(json.dumps({"check": name, "ok": ok, "detail": str(detail)[:300]}), flush=True)

    async def text(self, tool, **arguments):
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        return result.content[0].text

    async def until(self, ready, what):
        for _ in range(PATIENCE * 50):
            if ready():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"no {what}")

    # One behaviour each; the name behind `does_` is the check's.

    async def does_list(self):
        names, cursor = [], None
        while True:
            page = await self.client.list_tools(cursor=cursor)
            names += [tool.name for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                break
        assert {"echo", "ask", "long"} <= set(names) and len(set(names)) == len(names), names
        return len(names)

    async def does_call(self):
        text = "grüße \n\u2028"
        assert await self.text("echo", text=text) == text

    async def does_many(self):
        answers = await asyncio.gather(*(self.text("echo", text=str(number)) for number in range(20)))
        assert answers == [str(number) for number in range(20)], answers

    async def does_progress_and_cancel(self):
        """The SDKs drop progress that is read together with the answer, so the call has none."""
        before, seen = await self.text("stopped"), []

        async def on_progress(progress, total, message):
            seen.append(progress)

        call = asyncio.create_task(self.client.call_tool("long", {}, progress_callback=on_progress))
        await self.until(lambda: len(seen) >= 3, "progress")
        call.cancel()
        await asyncio.wait([call], timeout=PATIENCE)
        assert call.cancelled() and seen == sorted(set(seen)), seen
        for _ in range(PATIENCE * 10):
            if await self.text("stopped") != before:
                return seen
            await asyncio.sleep(0.1)
        raise AssertionError("the server was not told")

    async def does_error(self):
        assert (await self.client.call_tool("fail", {})).is_error
        try:
            refused = (await self.client.call_tool("no-such-tool", {})).is_error
        except MCPError:
            refused = True
        assert refused

    async def does_elicitation(self):
        assert await self.text("ask") == "hello Ada"

    async def does_sampling(self):
        assert await self.text("think") == "a thought"

    async def does_roots(self):
        assert await self.text("where") == "file:///a-root"

    async def does_subscribe(self):
        if self.is_modern:
            wanted = {"ToolsListChanged"} | ({"ResourceUpdated"} if self.offers.resources.subscribe else set())
            async with self.client.listen(tools_list_changed=True, resource_subscriptions=["eras://counter"]) as events:
                await self.text("touch")
                heard = {type(await asyncio.wait_for(anext(events), PATIENCE)).__name__ for _ in wanted}
            assert heard == wanted, heard
            return sorted(heard)
        if not self.offers.resources.subscribe:
            return "not offered"
        await self.client.subscribe_resource("eras://counter")
        self.seen["changes"].clear()
        await self.text("touch")
        wanted = {"notifications/resources/updated", "notifications/tools/list_changed"}
        await self.until(lambda: wanted <= set(self.seen["changes"]), f"both of {wanted}")
        await self.client.unsubscribe_resource("eras://counter")
        return sorted(wanted)

    async def does_log(self):
        if self.offers.logging is None:
            return "not offered"
        if not self.is_modern:
            await self.client.set_logging_level("info")
        self.seen["logs"].clear()
        await self.text("log")
        await self.until(lambda: self.seen["logs"], "log message")
        return self.seen["logs"][0]

    async def does_read(self):
        listed = (await self.client.list_resources()).resources
        assert [str(one.uri) for one in listed] == ["eras://counter"], listed
        return (await self.client.read_resource("eras://counter")).contents[0].text

    async def does_prompts(self):
        listed = (await self.client.list_prompts()).prompts
        got = await self.client.get_prompt(listed[0].name, {"language": "rust"})
        assert "rust" in got.messages[0].content.text

    async def does_completion(self):
        ref = types.PromptReference(type="ref/prompt", name="review")
        answer = await self.client.complete(ref, {"name": "language", "value": "p"})
        assert answer.completion.values == ["python", "perl"], answer

    async def does_large(self):
        assert len(await self.text("big", size=3_000_000)) == 3_000_000

    async def does_crash(self):
        try:
            await self.client.call_tool("die", {})
        except MCPError as error:
            assert error.code == -31001, error
        else:
            raise AssertionError("a crash was answered with a result")
        assert await self.text("echo", text="again") == "again"


async def main(mode, command):
    seen = {"logs": [], "changes": []}

    async def on_sample(context, params):
        text = types.TextContent(type="text", text="a thought")
        return types.CreateMessageResult(role="assistant", model="m", content=text)

    async def on_roots(context):
        return types.ListRootsResult(roots=[types.Root(uri="file:///a-root")])

    async def on_elicit(context, params):
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def on_log(params):
        seen["logs"].append(params.data)

    async def on_message(message):
        method = getattr(message, "method", "")
        if method.endswith(("updated", "list_changed")):
            seen["changes"].append(method)

    client = Client(
        StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ)),
        mode=mode, log_level="debug" if mode != "legacy" else None,
        sampling_callback=on_sample, list_roots_callback=on_roots, elicitation_callback=on_elicit,
        logging_callback=on_log, message_handler=on_message)
    host = Host(client, seen)

    async def connect():
        await client.__aenter__()
        if mode not in ("auto", "legacy"):  # a version that is given is taken without a question
            found = types.DiscoverResult.model_validate(await client.session.send_discover(mode))
            assert mode in found.supported_versions, found
            host.offers = found.capabilities
        else:
            host.offers = client.server_capabilities
        return client.protocol_version

    await host.check("connect", connect)
    if not host.failed:
        for name in [name.removeprefix("does_") for name in vars(Host) if name.startswith("does_")]:
            if name not in LEFT_OUT:
                await host.check(name, getattr(host, f"does_{name}"))
        await client.__aexit__(None, None, None)
    return host.failed


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(main(sys.argv[1], sys.argv[2:])) else 0)
