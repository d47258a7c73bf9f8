"""A server on the official Python SDK (2.x) with one tool a behaviour: eras_server.py

The SDK serves either era, one a connection; the key `protocol` of mcpd says which it is asked for.
"""
import os

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    Completion, CompletionArgument, CreateMessageRequest, CreateMessageRequestParams, ElicitRequest, ElicitRequestFormParams,
    InputRequiredResult, ListRootsRequest, SamplingMessage, TextContent,
)
from pydantic import BaseModel

MODERN = "2026-07-28"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

server = MCPServer("eras", version="1", instructions="One tool a behaviour.")
state = {"stopped": 0, "touched": 0}


class Answer(BaseModel):
    name: str


def is_modern(ctx):
    return ctx.protocol_version >= MODERN


def given(ctx, key):
    """What the host answered to the question of this key, in the modern era."""
    return (ctx.input_responses or {}).get(key)


@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
def fail() -> str:
    """End in an error."""
    raise ValueError("it failed")


@server.tool()
def big(size: int) -> str:
    """Say much."""
    return "x" * size


@server.tool()
def stopped() -> str:
    """How many long calls were cancelled."""
    return str(state["stopped"])


@server.tool()
def die() -> str:
    """End the process in the middle of the call."""
    os._exit(3)


@server.tool()
async def long(ctx: Context) -> str:
    """Report progress until somebody cancels."""
    try:
        for step in range(1, 1200):
            await ctx.report_progress(step, 1200, f"step {step}")
            await anyio.sleep(0.05)
    except anyio.get_cancelled_exc_class():
        state["stopped"] += 1
        raise
    return "nobody cancelled"


@server.tool()
async def ask(ctx: Context) -> str | InputRequiredResult:
    """Ask the user for a name."""
    if not is_modern(ctx):
        asked = await ctx.elicit("Who are you?", Answer)
        return f"hello {asked.data.name}" if asked.action == "accept" else asked.action
    answer = given(ctx, "who")
    if answer is None:
        form = ElicitRequestFormParams(message="Who are you?", requested_schema=FORM)
        return InputRequiredResult(input_requests={"who": ElicitRequest(params=form)}, request_state="half way")
    if ctx.request_state != "half way":
        raise ValueError(f"the state came back as {ctx.request_state!r}")
    return f"hello {answer.content['name']}" if answer.action == "accept" else answer.action


@server.tool()
async def think(ctx: Context) -> str | InputRequiredResult:
    """Ask the host's model."""
    question = SamplingMessage(role="user", content=TextContent(type="text", text="what now?"))
    if not is_modern(ctx):
        answer = await ctx.session.create_message([question], max_tokens=9)
        return answer.content.text
    answer = given(ctx, "model")
    if answer is None:
        params = CreateMessageRequestParams(max_tokens=9, messages=[question])
        return InputRequiredResult(input_requests={"model": CreateMessageRequest(params=params)})
    return answer.content.text


@server.tool()
async def where(ctx: Context) -> str | InputRequiredResult:
    """Ask for the host's roots."""
    if not is_modern(ctx):
        return str((await ctx.session.list_roots()).roots[0].uri)
    answer = given(ctx, "roots")
    if answer is None:
        return InputRequiredResult(input_requests={"roots": ListRootsRequest()})
    return str(answer.roots[0].uri)


@server.tool()
async def touch(ctx: Context) -> str:
    """Change the resource and the list of tools."""
    state["touched"] += 1
    server.add_tool(lambda: "new", name=f"new_{state['touched']}", description="A new tool.")
    if is_modern(ctx):
        await ctx.notify_tools_changed()
        await ctx.notify_resource_updated("eras://counter")
    else:
        await ctx.session.send_tool_list_changed()
    return str(state["touched"])


@server.tool()
async def log(ctx: Context) -> str:
    """Log a line."""
    await ctx.log("warning", "a line")
    await anyio.sleep(0.2)
    return "logged"


@server.resource("eras://counter", mime_type="text/plain")
def counter() -> str:
    """How often it was touched."""
    return str(state["touched"])


@server.prompt()
def review(language: str) -> str:
    """Ask for a review."""
    return f"Review this {language}."


@server.completion()
async def complete(ref, argument: CompletionArgument, context) -> Completion:
    values = [name for name in ("python", "perl", "rust") if name.startswith(argument.value)]
    return Completion(values=values, total=len(values), has_more=False)


server.run("stdio")
